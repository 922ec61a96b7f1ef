import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.footprint import gib
from helpers.memory import explain_oom as the_same
from helpers.oom import OutOfMemory, explain_oom

KIB, MIB, GIB = 2**10, 2**20, 2**30


def sized(count):
    """Write bytes as PyTorch does."""
    for unit, size in (("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if count > size:
            return f"{count / size:.2f} {unit}"
    return f"{count} bytes"


def newer(asked, capacity, free, allocated, idle, *, word="CUDA", spelt="capacity", between=""):
    """Torch 2.1 and later."""
    return (
        f"torch.OutOfMemoryError: {word} out of memory. Tried to allocate {asked}. GPU 0 has a "
        f"total {spelt} of {capacity} of which {free} is free. {between}Of the allocated memory "
        f"{allocated} is allocated by PyTorch, and {idle} is reserved by PyTorch but unallocated. "
        f"If reserved but unallocated memory is large"
    )


def older(asked, capacity, allocated, free, rest, *, word="CUDA"):
    """Torch before 2.1; XPU leaves out what is free."""
    free = "" if free is None else f"{free} free; "
    return (
        f"RuntimeError: {word} out of memory. Tried to allocate {asked} (GPU 0; {capacity} total "
        f"capacity; {allocated} already allocated; {free}{rest})"
    )


def pooled(allocated, asked, capacity, free, limit="17179869184.00 GiB"):
    """The allocator of CUDA itself, cudaMallocAsync."""
    return (
        f"Allocation on device 0 would exceed allowed memory. (out of memory)\n"
        f"Currently allocated     : {allocated}\nRequested               : {asked}\n"
        f"Device limit            : {capacity}\nFree (according to CUDA): {free}\n"
        f"PyTorch limit (set by user-supplied memory fraction)\n                        : {limit}"
    )


def apple(allocated, other, allowed, asked):
    return (
        f"MPS backend out of memory (MPS allocated: {allocated}, other allocations: {other}, max "
        f"allowed: {allowed}). Tried to allocate {asked} on private pool. Use"
    )


KNOWN = [
    newer("2.00 GiB", "40.00 GiB", "1.00 GiB", "38.00 GiB", "512.00 MiB"),
    older("2.00 GiB", "8.00 GiB", "7.00 GiB", "0 bytes", "64.00 MiB cached", word="HIP"),
    pooled("5.79 GiB", "576.00 MiB", "8.00 GiB", "0 bytes"),
    apple("5.56 GB", "1.10 GB", "6.80 GB", "768.00 MB"),
    "XPU out of memory. Tried to allocate 4.00 GiB (GPU 0; 15.11 GiB total capacity; 0 bytes",
    "Current platform can NOT allocate memory block with size larger than 4GB! Tried to allocate 7",
    "Invalid buffer size: 14.24 GiB",
    "CUDA error: out of memory",
    "cuda runtime error (2) : out of memory at /pytorch/aten/src/THC/generic/THCStorage.cu:58",
    "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    "[enforce fail at alloc_cpu.cpp:98] DefaultCPUAllocator: not enough memory: you tried to",
    "$ Torch: not enough memory: you tried to allocate 72GB. Buy new RAM!",
]


# --- public reports, and what is right about each -------------------------------------------------


def test_the_spelling_of_torch_2_1_and_pieces_that_would_have_done():
    found = explain_oom(
        newer("1.70 GiB", "6.00 GiB", "0 bytes", "2.93 GiB", "2.30 GiB", spelt="capacty")
    )
    assert (found.cause, found.capacity, found.free) == ("fragmented", 6 * GIB, 0)
    assert found.idle_share == pytest.approx(2.30 / 5.23, abs=1e-3)
    for number in ("5.23 GiB", "2.30 GiB", "44%", "expandable_segments"):
        assert number in found.advice


def test_a_tensor_larger_than_the_card():
    found = explain_oom(
        newer("64.00 GiB", "14.75 GiB", "5.48 GiB", "8.79 GiB", "352.00 MiB", spelt="capacty")
    )
    assert found.cause == "too large"
    assert "One tensor of 64.00 GiB is larger than the 14.75 GiB" in found.advice


def test_what_was_called_cached_is_idle_and_of_this_process():
    found = explain_oom(
        older("294.00 MiB", "7.79 GiB", "6.27 GiB", "61.62 MiB", "617.88 MiB cached")
    )
    assert found.cause == "fragmented"
    assert found.unallocated == round(617.88 * MIB)
    assert found.outside == pytest.approx(0.86 * GIB, abs=0.01 * GIB)
    assert "expandable_segments" not in found.advice  # which came with torch 2.1


@pytest.mark.parametrize("own", ["Including non-PyTorch memory, this process has 8.04 GiB. ", ""])
def test_other_processes_come_before_a_limit_that_nobody_named(own):
    named = "Process 11 has 424.00 MiB memory in use. Process 12 has 14.85 GiB memory in use. "
    found = explain_oom(
        newer(
            *("86.00 MiB", "23.64 GiB", "264.00 MiB", "7.90 GiB", "143.36 MiB"), between=named + own
        )
    )
    assert found.cause == "others"
    assert found.outside == pytest.approx(15.34 * GIB, abs=0.01 * GIB)
    assert "15.34 GiB" in found.advice
    assert "98.9% of 23.64 GiB is in use" in found.advice
    assert "End the other processes" in found.advice
    assert "limit" not in found.advice


def test_idle_memory_is_judged_against_what_was_asked():
    found = explain_oom(
        newer("11.74 GiB", "251.98 GiB", "6.94 GiB", "229.04 GiB", "12.46 GiB", word="HIP")
    )
    assert found.cause == "fragmented"
    assert found.idle_share == pytest.approx(0.0516, abs=1e-4)
    assert "PYTORCH_HIP_ALLOC_CONF" in found.advice


def test_the_allocator_of_cuda_itself():
    found = explain_oom(pooled("5.79 GiB", "576.00 MiB", "8.00 GiB", "0 bytes"))
    assert (found.cause, found.allowed, found.unallocated) == ("full", None, None)
    assert (found.asked, found.capacity, found.free) == (576 * MIB, 8 * GIB, 0)
    assert found.outside == pytest.approx(2.21 * GIB, abs=0.01 * GIB)
    assert "2.21 GiB of that are not in tensors of this run" in found.advice
    limited = explain_oom(
        pooled("5.79 GiB", "576.00 MiB", "24.00 GiB", "17.00 GiB", limit="6.00 GiB")
    )
    assert (limited.cause, limited.allowed) == ("limit", 6 * GIB)


def test_an_empty_device_is_never_full():
    found = explain_oom(
        older(
            *("4.00 GiB", "15.11 GiB", "0 bytes", None, "0 bytes reserved in total by PyTorch"),
            word="XPU",
        )
    )
    assert (found.cause, found.allocated, found.free) == ("unknown", 0, None)
    assert "one allocation larger than the device allows at once" in found.advice
    at_once = explain_oom(
        "Current platform can NOT allocate memory block with size larger than 4GB! Tried to "
        "allocate 6.85 GiB (GPU 0; 15.56 GiB total capacity; 0 bytes already allocated)"
    )
    assert at_once.cause == "too large"
    assert explain_oom("Invalid buffer size: 14.24 GiB").cause == "too large"


def test_a_device_with_room_leaves_several_possibilities():
    found = explain_oom(newer("20.00 MiB", "4.00 GiB", "2.35 GiB", "1.05 GiB", "24.85 MiB"))
    assert found.cause == "unknown"
    assert found.advice.startswith("The device has room.")
    assert "may be" in found.advice


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (127 * MIB, "127.00 MiB"),
        (1000 * KIB, "1,000.00 KiB"),
        (1.5 * GIB, "1.50 GiB"),
        (1023, "1,023 B"),
        (MIB, "1.00 MiB"),
    ],
)
def test_a_unit_that_fits_the_number(count, text):
    assert gib(count) == text


# --- random messages ------------------------------------------------------------------------------

# Sizes of one card, so that many of the messages are at a boundary between two causes.
PARTS = st.builds(
    lambda capacity, *shares: [capacity, *(int(capacity * share) for share in shares)],
    st.integers(GIB, 300 * GIB),
    st.floats(0.001, 1.1),  # asked for
    *[st.floats(0, 1.1)] * 4,
)


def write(kind, capacity, asked, free, allocated, idle, limit):
    """Return a message of a kind, and the sizes in it."""
    size = {
        "capacity": capacity, "asked": asked, "free": free, "allocated": allocated,
        "unallocated": idle, "allowed": limit,
    }  # fmt: skip
    a, c, f, t, i, most = (
        sized(size[name])
        for name in ("asked", "capacity", "free", "allocated", "unallocated", "allowed")
    )
    reserved = f"{sized(allocated + idle)} reserved in total by PyTorch"
    make = {
        "newer": lambda: newer(a, c, f, t, i),
        "capacty": lambda: newer(a, c, f, t, i, spelt="capacty"),
        "hip": lambda: newer(a, c, f, t, i, word="HIP"),
        "limited": lambda: newer(a, c, f, t, i, between=f"{most} allowed; "),
        "reserved": lambda: older(a, c, t, f, reserved),
        "cached": lambda: older(a, c, t, f, f"{i} cached"),
        "xpu": lambda: older(a, c, t, None, reserved, word="XPU"),
        "pooled": lambda: pooled(t, a, c, f, most),
        "apple": lambda: apple(t, i, most, a).replace("iB", "B"),
        "cpu": lambda: (
            f"DefaultCPUAllocator: can't allocate memory: you tried to allocate {asked} "
            f"bytes. Error code 12 (Cannot allocate memory)"
        ),
    }
    left_out = {
        "xpu": ["free", "allowed"],
        "pooled": ["unallocated"],
        "apple": ["capacity", "free", "unallocated"],
        "cpu": ["capacity", "free", "allocated", "unallocated", "allowed"],
        "limited": [],
    }
    for name in left_out.get(kind, ["allowed"]):
        size[name] = None
    if size["allowed"] is not None and kind != "apple" and size["allowed"] >= capacity:
        size["allowed"] = None  # no limit
    return make[kind](), size


KINDS = [
    *("newer", "capacty", "hip", "limited", "reserved", "cached", "xpu", "pooled", "apple", "cpu")
]


def near(found, exact):
    """Return whether two sizes are the same but for the two digits of the message."""
    return abs(found - exact) <= 0.02 * GIB if exact > GIB else abs(found - exact) <= 0.02 * MIB


@pytest.mark.parametrize("kind", KINDS)
@given(parts=PARTS, before=st.sampled_from(["", "Traceback:\n  x = y\n", "step 3, 7 GB free? "]))
@settings(max_examples=60, deadline=None)
def test_random_messages_say_what_they_say_and_no_more(kind, parts, before):
    message, size = write(kind, *parts)
    found = explain_oom(before + message)
    for name, exact in size.items():
        read = getattr(found, name)
        at_the_edge = name == "allowed" and exact is None and read is not None
        if at_the_edge:  # rounded, the limit may lie just below the card
            assert read >= 0.99 * size["capacity"]
        elif exact is None or read is None:
            assert read is None or name == "allowed", (name, message)
            assert exact is None or name == "allowed", (name, message)
        else:
            # What is idle may be the difference of two rounded numbers.
            assert near(read, exact) or abs(read - exact) <= 0.02 * GIB, (name, message)
    assert explain_oom(f"{message}\n{newer(*['1.00 MiB'] * 5)}") == found  # the first counts
    assert repr(found).startswith(f"OutOfMemory, {found.cause}: ")


@pytest.mark.parametrize("kind", KINDS)
@given(parts=PARTS)
@settings(max_examples=150, deadline=None)
def test_no_cause_is_named_that_the_numbers_do_not_carry(kind, parts):
    message, _ = write(kind, *parts)
    found = explain_oom(message)
    asked, capacity, free = found.asked, found.capacity, found.free
    idle, ours = found.unallocated or 0, (found.allocated or 0) + (found.unallocated or 0)
    if kind == "cpu":
        assert found.cause == "full"
    elif kind == "apple":
        assert found.cause == "limit"
    else:
        assert (found.cause == "too large") == (asked > capacity)
    if found.cause == "fragmented":
        assert idle + (max(capacity - ours, 0) if free is None else free) >= asked
        assert gib(idle) in found.advice
        assert idle > capacity / 51
    if found.cause == "others":
        assert found.outside > asked
        assert gib(found.outside) in found.advice
        assert free < asked or free < capacity / 49
    if found.cause == "limit":
        assert "allowed" in message
        assert gib(found.allowed) in found.advice
        assert kind == "apple" or (free >= asked and ours + asked > found.allowed)
    if found.cause == "full" and kind != "cpu":
        left = max(capacity - ours, 0) if free is None else free
        assert left < asked or left < capacity / 49
    if found.cause == "unknown":
        assert (capacity - ours if free is None else free) >= asked
        assert found.allowed is None or ours + asked <= found.allowed


# --- every cause by hand --------------------------------------------------------------------------

CUDA = (
    "CUDA out of memory. Tried to allocate {}. GPU 0 has a total capacity of 40.00 GiB of which {} "
    "is free. Including non-PyTorch memory, this process has {} memory in use. {}Of the allocated "
    "memory {} is allocated by PyTorch, with 17.00 MiB allocated in private pools (e.g., CUDA "
    "Graphs), and {} is reserved by PyTorch but unallocated. If reserved but unallocated memory is "
    "large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation."
)


@pytest.mark.parametrize(
    ("asked", "free", "own", "allowed", "allocated", "unallocated", "cause", "advice"),
    [
        ("2.00 GiB", "1.00 GiB", "39.00 GiB", "", "38.00 GiB", "512.00 MiB", "full", "smaller"),
        ("2.00 GiB", "1.00 GiB", "39.00 GiB", "", "35.00 GiB", "3.50 GiB", "fragmented", "piece"),
        (
            "2.00 GiB",
            "30.00 GiB",
            "10.00 GiB",
            "9.60 GiB allowed; ",
            "9.00 GiB",
            "256.00 MiB",
            "limit",
            "limit",
        ),
        ("2.00 GiB", "0 bytes", "10.00 GiB", "", "9.00 GiB", "512.00 MiB", "others", "30.00 GiB"),
        ("64.00 GiB", "30.00 GiB", "10.00 GiB", "", "9.00 GiB", "0 bytes", "too large", "One t"),
        ("2.00 GiB", "30.00 GiB", "10.00 GiB", "", "9.00 GiB", "0 bytes", "unknown", "has room"),
        # nonsense that CUDA reports in some containers
        (
            "2.00 GiB",
            "0 bytes",
            "17179869184.00 GiB",
            "",
            "9.00 GiB",
            "0 bytes",
            "others",
            "31.00 GiB",
        ),
    ],
)
def test_the_likely_cause_of_running_out(
    asked, free, own, allowed, allocated, unallocated, cause, advice
):
    found = explain_oom(CUDA.format(asked, free, own, allowed, allocated, unallocated))
    numbers = [float(text.split()[0]) for text in (asked, free, allocated)]
    assert [found.asked, found.free, found.allocated] == [GIB * number for number in numbers]
    assert found.process == (None if "17179869184" in own else GIB * float(own.split()[0]))
    assert found.cause == cause
    assert advice in found.advice
    assert "asked for" in repr(found)


def test_the_message_of_older_versions():
    found = explain_oom(
        "CUDA out of memory. Tried to allocate 36.00 MiB (GPU 0; 7.93 GiB total capacity; 130.00 "
        "MiB already allocated; 17.00 MiB free; 188.00 MiB reserved in total by PyTorch) If"
    )
    assert found.asked == 36 * 2**20
    assert found.unallocated == 58 * 2**20
    # 58 MiB in pieces would have done for once; the rest of the 8 GiB is held by somebody else.
    assert found.cause == "others"
    assert "7.73 GiB" in found.advice


def test_a_full_device_with_a_little_in_pieces_is_full():
    """As reported in pytorch 16417: 22 MiB refused, 195 MiB idle, on a card of 24 GB."""
    found = explain_oom(
        "CUDA out of memory. Tried to allocate 22.00 MiB. GPU 0 has a total capacity of 23.65 GiB "
        "of which 11.06 MiB is free. Including non-PyTorch memory, this process has 23.60 GiB "
        "memory in use. Of the allocated memory 22.90 GiB is allocated by PyTorch, and 194.87 MiB "
        "is reserved by PyTorch but unallocated."
    )
    assert (found.cause, found.process) == ("full", round(23.60 * GIB))
    assert "99.954% of 23.65 GiB is in use" in found.advice


def test_memory_that_the_driver_takes_from_elsewhere():
    """On Windows more may be allocated than the card has: then nothing is known of others."""
    found = explain_oom(newer("14.00 MiB", "4.00 GiB", "0 bytes", "6.97 GiB", "184.73 MiB"))
    assert found.outside is None
    assert found.cause in ("fragmented", "full")


def test_the_message_of_a_cpu():
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**50, dtype=torch.uint8)
    found = explain_oom(str(caught.value))
    assert (found.asked, found.free, found.cause) == (2**50, None, "full")


def test_a_limit_on_a_mac():
    found = explain_oom(apple("9.57 GiB", "17.35 GiB", "27.20 GiB", "292.50 MiB"))
    assert (found.cause, found.allowed) == ("limit", round(27.20 * GIB))
    assert found.outside == round(17.35 * GIB)
    assert "PYTORCH_MPS_HIGH_WATERMARK_RATIO" in found.advice


@pytest.mark.parametrize("message", ["CUDA error: out of memory", "torch.OutOfMemoryError"])
def test_a_message_without_numbers(message):
    found = explain_oom(message)
    assert found.cause == "unknown"
    assert repr(found).startswith("OutOfMemory, unknown: no numbers\n")
    parts = ("asked", "allocated", "unallocated", "free", "process", "capacity", "allowed")
    assert {getattr(found, part) for part in (*parts, "outside", "idle_share")} == {None}


def test_another_message_is_refused():
    with pytest.raises(ValueError, match="must be that of an out-of-memory error; got 'oh no'"):
        explain_oom("oh no")
    with pytest.raises(ValueError, match="must be that of an out-of-memory error"):
        explain_oom("CUDA error: device-side assert triggered")
    with pytest.raises(TypeError, match="message must be the text of an error; got None"):
        explain_oom(None)


def test_it_is_the_same_without_torch():
    assert explain_oom is the_same
    assert OutOfMemory.__module__ == "helpers.oom"
    code = "import sys, helpers.oom; print([n for n in ('torch', 'numpy') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
