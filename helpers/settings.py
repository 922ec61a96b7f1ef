"""A plan in the words of other tools, and what they count differently. No torch here.

A loop of one's own on Accelerate is none of these tools, and differs once more: its ``backward``
divides each micro-batch by the accumulation, also in the last update of an epoch, which may hold
fewer. Gradients 1 to 5, accumulation 2, plain SGD at rate 1, from 0: the weight there is −1.5, −5
and −7.5, where here, and with the Trainer of Transformers, it is −1.5, −5 and −10. A plan with
``drop_last_update`` has no such update.
"""

from typing import Any

from helpers._checks import one_of, positive
from helpers.plan import RunPlan
from helpers.schedule import DECAYS

TOOLS = ("transformers", "axolotl", "unsloth", "torchtune")
# Transformers' names. After a warmup its curves are those of ``lr_factors``, one update later.
SCHEDULERS = {
    "constant": "constant_with_warmup",
    "linear": "linear",
    "cosine": "cosine",
}


def settings_for(tool: str, plan: RunPlan, *, lr: float, decay: str = "cosine") -> dict[str, Any]:
    """Return the settings of a tool that carry out a plan, by the tool's own names.

    "transformers" are arguments of ``TrainingArguments``, and "unsloth" the same ones of TRL's
    ``SFTConfig``, which inherits them; "axolotl" and "torchtune" are entries of their YAML files,
    with a dot where one is inside another. The number of devices is none of them:
    it comes from the launcher. The warmup is given in updates, because tools round a share in
    different ways.

    Raises ``ValueError`` for another tool, a decay that the tool does not have, a plan with a ramp,
    and for torchtune, or with ``drop_last_update``, a plan that the tool would count differently:
    see ``differences``.
    """
    one_of("tool", tool, TOOLS)
    one_of("decay", decay, [name for name in DECAYS if name in SCHEDULERS])
    positive("lr", lr)
    if plan.ramp is not None:
        raise ValueError("plan must be without a ramp: none of the tools has one")
    reasons = [note for note in differences(plan)[tool] if note.startswith("It makes")]
    if reasons and (tool == "torchtune" or plan.drop_last_update):
        raise ValueError(f"plan must be one that {tool} counts alike: {' '.join(reasons)}")
    make = {"axolotl": _axolotl, "torchtune": _torchtune}.get(tool, _transformers)
    return make(plan, lr, decay)


def _length(plan: RunPlan, epochs: str) -> dict[str, Any]:
    # Part of an epoch is given in updates: the tools multiply in floats, and then round up.
    if plan.max_steps is not None or not isinstance(plan.epochs, int):
        return {"max_steps": plan.total_steps}
    return {epochs: plan.epochs}


def _transformers(plan: RunPlan, lr: float, decay: str) -> dict[str, Any]:
    return {
        "per_device_train_batch_size": plan.batch_size,
        "gradient_accumulation_steps": plan.accumulation,
        **_length(plan, "num_train_epochs"),
        "learning_rate": lr,
        "lr_scheduler_type": SCHEDULERS[decay],
        "warmup_steps": plan.warmup_steps,
        "dataloader_drop_last": _drops_last(plan),
    }


def _axolotl(plan: RunPlan, lr: float, decay: str) -> dict[str, Any]:
    return {
        "micro_batch_size": plan.batch_size,
        "gradient_accumulation_steps": plan.accumulation,
        **_length(plan, "num_epochs"),
        "learning_rate": lr,
        "lr_scheduler": SCHEDULERS[decay],
        "warmup_steps": plan.warmup_steps,
        "dataloader_drop_last": _drops_last(plan),
    }


def _drops_last(plan: RunPlan) -> bool:
    return plan.drop_last or plan.drop_last_update


def _torchtune(plan: RunPlan, lr: float, decay: str) -> dict[str, Any]:
    if decay != "cosine":
        raise ValueError(f"decay must be 'cosine' for torchtune, its usual one; got {decay!r}")
    return {
        "batch_size": plan.batch_size,
        "gradient_accumulation_steps": plan.accumulation,
        "epochs": plan.epochs,
        "optimizer.lr": lr,
        "lr_scheduler.num_warmup_steps": plan.warmup_steps,
    }


def differences(plan: RunPlan) -> dict[str, list[str]]:
    """Return in words what each tool counts differently in this plan.

    Transformers, which Axolotl and Unsloth are built on, rounds updates an epoch up, as here, and
    starts its warmup at a rate of zero. With several devices its Accelerate deals whole batches to
    them and fills the last ones up, where here, and in ``DistributedSampler``, examples are dealt.
    torchtune leaves out the last batch and the last window that are not full.
    """
    dealt = _dealt_in_batches(plan)
    if plan.warmup_steps:
        dealt.append("The first update has a rate of zero, so the warmup is one update later.")
    notes = {tool: [] if tool == "torchtune" else list(dealt) for tool in TOOLS}
    if not isinstance(plan.epochs, int) or plan.max_steps is not None:
        notes["torchtune"].append("It makes whole epochs only.")
    share = -(-plan.examples // plan.devices)
    full = share // plan.batch_size // plan.accumulation
    if full < plan.steps_per_epoch:
        notes["torchtune"].append(
            f"It makes {full:,} updates an epoch and not {plan.steps_per_epoch:,}: what does not "
            f"fill a batch and a window is left out."
        )
    return notes


def _dealt_in_batches(plan: RunPlan) -> list[str]:
    """Return what differs where whole batches are dealt to the devices, and every window counts."""
    if _drops_last(plan):
        batches = plan.examples // plan.batch_size // plan.devices
    else:
        batches = -(-plan.examples // (plan.batch_size * plan.devices))
    updates = -(-batches // plan.accumulation)
    why = "it deals whole batches to the devices"
    if plan.drop_last_update and batches % plan.accumulation:
        why = "it keeps the last one, which is not full"
    if updates != plan.steps_per_epoch:
        return [f"It makes {updates:,} updates an epoch and not {plan.steps_per_epoch:,}: {why}."]
    seen = batches * plan.batch_size * plan.devices
    if plan.devices > 1 and seen != plan.examples_seen:
        return [
            f"It sees {seen:,} examples an epoch and not {plan.examples_seen:,}: {why}, and fills "
            f"up the last ones."
        ]
    return []
