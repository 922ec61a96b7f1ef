"""What Transformers computes for itself, beside what we compute."""

import dataclasses
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.data import DataLoader

from helpers import memory
from helpers.data import CharTokenizer, collate, make_records, shuffled_batches
from helpers.memory import simulation
from helpers.memory.tracker import Tracker, fullest, tracking
from helpers.model import ModelConfig, SmallLM, token_loss
from helpers.plan import RunPlan
from helpers.schedule import lr_factors
from helpers.settings import settings_for
from helpers.shapes import SHAPES
from helpers.train import train

transformers = pytest.importorskip("transformers")
accelerate = pytest.importorskip("accelerate")


def trainer_counts(examples, batch_size, accumulation, drop_last, epochs, max_steps):
    """Return (updates an epoch, updates in all) as a Trainer works them out."""
    arguments = SimpleNamespace(
        max_steps=max_steps,
        num_train_epochs=epochs,
        gradient_accumulation_steps=accumulation,
        per_device_train_batch_size=batch_size,
    )
    trainer = SimpleNamespace(
        get_total_train_batch_size=lambda _: batch_size * accumulation,
        get_sp_size=lambda: 1,
        num_examples=lambda _: examples,
    )
    loader = DataLoader(range(examples), batch_size=batch_size, drop_last=drop_last)
    values = transformers.Trainer.set_initial_training_values(trainer, arguments, loader)
    return values[1], values[-1]


@given(
    examples=st.integers(1, 300),
    batch_size=st.integers(1, 20),
    accumulation=st.integers(1, 9),
    drop_last=st.booleans(),
    quarters=st.integers(1, 20),
    max_steps=st.one_of(st.just(-1), st.integers(1, 50)),
)
@settings(max_examples=150, deadline=None)
def test_plan_counts_as_trainer_does(
    examples, batch_size, accumulation, drop_last, quarters, max_steps
):
    if drop_last and examples < batch_size:
        return
    epochs = quarters / 4
    length = {"epochs": epochs} if max_steps < 0 else {"max_steps": max_steps}
    plan = RunPlan(examples, batch_size, accumulation=accumulation, drop_last=drop_last, **length)
    theirs = trainer_counts(examples, batch_size, accumulation, drop_last, epochs, max_steps)
    assert (plan.steps_per_epoch, plan.total_steps) == theirs


def their_warmup(steps, warmup):
    return transformers.TrainingArguments.get_warmup_steps(
        SimpleNamespace(warmup_steps=warmup), steps
    )


@pytest.mark.parametrize(
    ("steps", "warmup"), [(50, 0.05), (10, 0.03), (7, 0.1), (1, 0.03), (300, 0.05), (100, 0.25)]
)
def test_warmup_rounds_as_trainer_does(steps, warmup):
    assert RunPlan(steps, 1, warmup=warmup).warmup_steps == their_warmup(steps, warmup)


@pytest.mark.parametrize(
    ("steps", "warmup", "ours", "theirs"), [(100, 0.07, 7, 8), (50, 0.14, 7, 8), (100, 1.0, 100, 1)]
)
def test_warmup_differs_where_the_docstring_says_so(steps, warmup, ours, theirs):
    assert RunPlan(steps, 1, warmup=warmup).warmup_steps == ours
    assert their_warmup(steps, warmup) == theirs


@given(
    total=st.integers(1, 60),
    warmup=st.integers(0, 60),
    decay=st.sampled_from(["constant", "linear", "cosine"]),
)
@settings(max_examples=60, deadline=None)
def test_factors_are_theirs_one_update_earlier(total, warmup, decay):
    if warmup > total:
        return
    name = "constant_with_warmup" if decay == "constant" else decay
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(()))], lr=1.0)
    theirs = transformers.get_scheduler(
        name, optimizer, num_warmup_steps=max(warmup, 1), num_training_steps=total + 1
    ).lr_lambdas[0]
    expected = [theirs(update) for update in range(1, total + 1)]
    assert lr_factors(total, warmup, decay) == pytest.approx(expected)


@given(warmup=st.integers(1, 20), stable=st.integers(0, 20), falling=st.integers(0, 20))
@settings(max_examples=40, deadline=None)
def test_trapezoid_is_theirs_one_update_earlier(warmup, stable, falling):
    total = warmup + stable + falling
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(()))], lr=1.0)
    theirs = transformers.get_wsd_schedule(
        optimizer,
        num_warmup_steps=warmup,
        num_decay_steps=falling + 1,
        num_training_steps=total + 1,
        decay_type="linear",
    ).lr_lambdas[0]
    expected = [theirs(update) for update in range(1, total + 1)]
    ours = lr_factors(total, warmup, "trapezoid", decay_steps=falling)
    assert ours == pytest.approx(expected)


class ForTrainer(torch.nn.Module):
    """A SmallLM behind the interface that a Trainer wants."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, labels, **loss_arguments):
        logits = self.model(input_ids)
        loss = token_loss(logits, labels, "sum") / loss_arguments["num_items_in_batch"]
        return {"loss": loss, "logits": logits}


class InOrder(transformers.Trainer):
    """A Trainer that takes the examples as they come."""

    def _get_train_sampler(self, *_):
        return None


@pytest.mark.parametrize("accumulation", [1, 4])
def test_trainer_makes_the_same_accumulated_updates_on_ragged_data(accumulation, tmp_path):
    records = make_records(46)
    tokenizer = CharTokenizer("".join(record.text for record in records))
    inputs, targets = collate(records, tokenizer)
    config = ModelConfig(tokenizer.vocab_size, inputs.shape[1], 16, 1, 2)

    ours = SmallLM(config)
    how = {"batch_size": 4, "accumulation": accumulation, "epochs": 1, "lr": 3e-3, "clip": 1.0}
    # without weight decay, which a Trainer leaves off norms and biases and torch does not
    optimizer = partial(torch.optim.AdamW, weight_decay=0.0, fused=True)
    history = train(ours, (inputs, targets), optimizer=optimizer, **how)

    order = torch.cat(shuffled_batches(46, 4, seed=0))
    examples = [{"input_ids": inputs[row], "labels": targets[row]} for row in order]
    theirs = SmallLM(config)
    trainer = InOrder(
        model=ForTrainer(theirs),
        args=transformers.TrainingArguments(
            output_dir=str(tmp_path),
            per_device_train_batch_size=4,
            gradient_accumulation_steps=accumulation,
            num_train_epochs=1,
            learning_rate=3e-3,
            lr_scheduler_type="constant",
            optim="adamw_torch_fused",
            weight_decay=0.0,
            max_grad_norm=1.0,
            use_cpu=True,
            report_to="none",
            save_strategy="no",
            disable_tqdm=True,
        ),
        train_dataset=examples,
    )
    trainer.train()
    assert trainer.state.global_step == history.steps
    for (name, a), (_, b) in zip(ours.named_parameters(), theirs.named_parameters()):
        assert torch.allclose(a, b, rtol=0, atol=2e-5), name


def their_model(shape):
    """Return Transformers' own class in the sizes of a shape."""
    sizes = {"vocab_size": shape.vocab_size, "use_cache": False, "attn_implementation": "sdpa"}
    if shape.family == "llama":
        return transformers.LlamaForCausalLM(
            transformers.LlamaConfig(
                hidden_size=shape.width,
                intermediate_size=shape.feed,
                num_hidden_layers=shape.layers,
                num_attention_heads=shape.heads,
                num_key_value_heads=shape.kv_heads,
                max_position_embeddings=shape.context,
                **sizes,
            )
        )
    # a GELU of one kernel, where GPT-2's default is written out; and without its dropouts
    dropouts = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            n_embd=shape.width,
            n_layer=shape.layers,
            n_head=shape.heads,
            n_positions=shape.context,
            activation_function="gelu",
            **dropouts,
            **sizes,
        )
    )


def their_step(shape, batch_size, context, checkpointing):
    """Return the memory of the second step of their model under the same simulation as ours."""
    with FakeTensorMode():
        with simulation._default_dtype(torch.bfloat16):
            model = their_model(shape).train()
        if checkpointing:
            model.activation_checkpointing_enable()
        optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
        tokens = torch.zeros(batch_size, context, dtype=torch.int64)
        tracker = Tracker()
        tracker.track_external(model, optimizer, tokens)
        with tracking(tracker):
            for _ in range(2):
                model(input_ids=tokens, labels=tokens).loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                instants = tracker.end_step()
    return memory.Breakdown(fullest(instants))


@pytest.mark.parametrize(
    ("name", "batch_size", "checkpointing"),
    [
        ("gpt2-124m", 8, False),
        ("llama-7b", 8, False),
        ("llama3-8b", 8, False),
        ("llama3-8b", 1, True),
    ],
)
def test_simulated_memory_is_that_of_their_classes(name, batch_size, checkpointing):
    shape = dataclasses.replace(SHAPES[name], layers=2)
    how = {"batch_size": batch_size, "context": 512, "checkpointing": checkpointing}
    theirs, ours = their_step(shape, **how), memory.simulate(shape, **how)
    for part in ("parameters", "gradients", "states"):
        assert getattr(ours, part) == pytest.approx(getattr(theirs, part), rel=1e-3)
    assert ours.peak == pytest.approx(theirs.peak, rel=0.02)
    assert ours.when == theirs.when
    # their output holds the 16-bit logits until the backward pass begins; ours is the loss alone
    logits = 2 * batch_size * 512 * shape.vocab_size
    assert ours.activations + logits == pytest.approx(theirs.activations, rel=0.05)


def test_weights_weigh_what_accelerate_says():
    with accelerate.init_empty_weights():
        model = their_model(SHAPES["llama3-8b"])
    total, _ = accelerate.utils.calculate_maximum_sizes(model)
    ours = memory.estimate("llama3-8b", batch_size=1, context=1, precision="float32").parameters
    assert total - ours == 2 * 64 * 4  # they count the speeds of the rotary positions, twice


@pytest.mark.parametrize(
    "plan",
    [
        RunPlan(810, 4, accumulation=2, epochs=3, warmup=0.07),
        RunPlan(810, 8, max_steps=39, warmup=5, drop_last=True),
        RunPlan(100, 8, epochs=1.5, warmup=1),
    ],
)
def test_settings_for_transformers_carry_out_the_plan(plan, tmp_path):
    made = settings_for("transformers", plan, lr=1e-4)
    arguments = transformers.TrainingArguments(output_dir=str(tmp_path), use_cpu=True, **made)
    counts = trainer_counts(
        plan.examples,
        arguments.per_device_train_batch_size,
        arguments.gradient_accumulation_steps,
        arguments.dataloader_drop_last,
        arguments.num_train_epochs,
        arguments.max_steps,
    )
    assert counts == (plan.steps_per_epoch, plan.total_steps)
    assert arguments.get_warmup_steps(plan.total_steps) == plan.warmup_steps
