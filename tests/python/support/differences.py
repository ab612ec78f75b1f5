# SPDX-License-Identifier: BSD-3-Clause
"""Where our figures differ from upstream's: both figures and the reason (see docs/differences.md).

Keys are those of `Record.flat`: a mark (or "peak") and a category, or a module and a state or size.
The counting allocator proves totals at marks and peaks, and most module states, in the same test
file; the arithmetic beside each row proves the rest.
"""

from __future__ import annotations

from typing import Any

from torch_version import TORCH

Rows = dict[str, tuple[Any, Any]]
"""key -> (upstream's, ours); None: the state does not exist"""

ONCE = "a storage counts once, however many tensors show it"
KEYWORDS = "keyword arguments are inputs"
OWN_BACKWARD = "a module's backward ends with its own last node, not with the whole backward"
RNG = "random-number states kept by checkpoints are memory"
RECOMPUTE = "tensors recomputed by a checkpoint are Activation, also outside modules"
REENTRANT = "modules in a reentrant checkpoint have a backward"
BACKWARDS = "each backward through a module has its states"
STRAY = "a forward without gradients, or that raised, has no backward"
UNDISTURBED = "upstream's mode adds gradients out of place"
RESIZE = "a resize is seen when it happens"
ALL_STORAGES = "upstream checks the storages of a subclass only up to the first known one"
COPY_ON_WRITE = "a lazy clone needs no memory until it is written to"
REGISTERED = "parameters and buffers are labelled at their registration"
EXCHANGED = "new memory of a parameter is Parameter at once, not at its module's next call"
CLOSED_STEP = "an optimizer step that raised has ended"
ENTRY = "gradients are labelled without a hook on the parameter"
LEFT_ACTIVE = "after an exception upstream's modules stay active, and their closures keep tensors"
BUCKETS = "buckets of DistributedDataParallel are Gradient"
CLOSURE = "what a closure makes is not part of the optimizer step"

# Blocks of the reentrant checkpoints -> upstream's Post-Backward, then ours: Pre-, Peak-, Post-.
_REENTRANT_BLOCKS = {
    "2": (263688, 443528, 713992, 394760),
    "2.2": (231688, 443528, 582920, 582920),
    "2.1": (231688, 582920, 713992, 451848),
    "2.0": (263688, 451848, 525832, 394760),
    "1": (214920, 460296, 730760, 411528),
    "1.2": (231688, 460296, 599688, 599688),
    "1.1": (231688, 599688, 730760, 468616),
    "1.0": (214920, 468616, 542600, 411528),
    "0": (231688, 411528, 681992, 362760),
    "0.2": (231688, 411528, 550920, 550920),
    "0.1": (231688, 550920, 681992, 419848),
    "0.0": (231688, 419848, 493832, 362760),
}


def is_fixed_upstream(since: tuple[int, int]) -> bool:
    """True if upstream has the right figures in this version of torch."""
    return since <= TORCH


DIFFERENCES: dict[str, dict[str, Rows]] = {
    # The loss, one float.
    "lbfgs": {CLOSURE: {"peak: Activation": (0, 4), "peak: Optstate": (88737, 88733)}},
    # The bucket has the bytes of all gradients, 12,672.
    "distributed_data_parallel": {
        BUCKETS: {
            "wrapped: Activation": (12672, 0),
            "wrapped: Gradient": (0, 12672),
            "before forward: Activation": (12672, 0),
            "before forward: Gradient": (0, 12672),
            "after forward: Activation": (12672 + 3076, 3076),
            "after forward: Gradient": (0, 12672),
            "after backward: Activation": (12672 + 4, 4),
            "after backward: Gradient": (12672, 2 * 12672),
            "after step: Activation": (12672 + 4, 4),
            "after step: Gradient": (12672, 2 * 12672),
            "after zero_grad: Activation": (12672 + 4, 4),
            "after zero_grad: Gradient": (0, 12672),
            "peak: Activation": (12672 + 8, 8),
            # Upstream calls gradients Temp until they are accumulated.
            "peak: Gradient": (8448, 2 * 12672),
            "peak: Temp": (5248, 1024),
        },
    },
    "attention": {
        # Three gradients of x are added up. For upstream's figure, see
        # test_upstream_is_right_about_the_run_that_it_disturbs.
        UNDISTURBED: {
            "peak: Gradient": (1088, 4352),
            "peak: Temp": (6400, 1920),
            "peak: Total": (13128, 11912),
            "MultiheadAttention: Peak-Backward": ([13128], [11912]),
        },
        ONCE: {"MultiheadAttention: input_mem": (3 * 640, 640)},
    },
    "transformer_layer": {
        UNDISTURBED: {"TransformerEncoderLayer.self_attn: Peak-Backward": ([22216], [22136])},
        ONCE: {"TransformerEncoderLayer.self_attn: input_mem": (3 * 640, 640)},
    },
    "transformer_decoder": {
        UNDISTURBED: {"TransformerDecoderLayer.self_attn: Peak-Backward": ([32072], [31992])},
        # Decoder memory: 2 x 7 x 16 float32 = 896, used as key and as value.
        ONCE: {
            "TransformerDecoderLayer.self_attn: input_mem": (3 * 640, 640),
            "TransformerDecoderLayer.multihead_attn: input_mem": (640 + 2 * 896, 640 + 896),
        },
    },
    # Upstream's modules stay active to the end of backward, and so have its peak; ours begin and
    # end where the gradient passes. Before the second layer: parameters 8,448, x and the first
    # layer's output 1,024 each, loss and its gradient 8. After it: that output is freed; the
    # gradient that passes (1,024) and the layer's gradients (4,224) exist.
    "modules_that_return_their_input": {
        OWN_BACKWARD: {
            "Sequential.1: Peak-Backward": ([18952], [14728]),
            "Sequential.2: Peak-Backward": ([18952], [14728]),
            "Sequential.2.0: Peak-Backward": ([18952], [14728]),
            "Sequential.2.1: Peak-Backward": ([18952], [14728]),
            "Sequential.4: Peak-Backward": ([18952], [10504]),
        },
    },
    "data_replaced": {
        EXCHANGED: {
            f"{mark}: {category}": row
            for mark in ("replaced", "before forward #2")
            for category, row in {"Parameter": (128, 4224), "Activation": (4096, 0)}.items()
        },
    },
    "keyword_arguments": {KEYWORDS: {"ByKeyword: input_mem": (0, 2 * 8 * 32 * 4)}},
    "same_argument_twice": {
        ONCE: {"TwoArguments: input_mem": (2 * 1024, 1024)},
        # The second call is differentiated first; the first call's gradient (1,024) is still live.
        OWN_BACKWARD: {"TwoArguments.fc: Post-Backward": ([9480, 9480], [10504, 9480])},
    },
    "outputs_that_share_a_storage": {ONCE: {"Chunks: output_mem": (2 * 2048, 2048)}},
    "parameters_that_share_a_storage": {ONCE: {"OneStorage: parameter_mem": (65536, 32768)}},
    "parametrized_weight": {
        # Without the gradient of the weight, 32 x 32, which is made later.
        OWN_BACKWARD: {
            "ParametrizedLinear.parametrizations.weight.0: Post-Backward": ([13832], [13832 - 4096])
        },
    },
    "checkpoint_reentrant": {
        REENTRANT: {
            f"Checkpointed.blocks.{block}: {state}": figures
            for block, (theirs, before, top, after) in _REENTRANT_BLOCKS.items()
            for state, figures in (
                ("Pre-Backward", (None, [before])),
                ("Peak-Backward", (None, [top])),
                ("Post-Backward", ([theirs], [after])),
            )
        },
    },
    "checkpoint_of_function": {
        # 512 x 64 float32 of the recompute: ReLU's output, which its backward and `@` use.
        RECOMPUTE: {
            "peak: Activation": (131080, 131080 + 131072),
            "peak: Temp": (393216, 393216 - 131072),
        },
    },
    "retain_graph": {
        BACKWARDS: {
            "Sequential: Post-Backward": ([29448], [29448, 26376]),
            "Sequential.0: Post-Backward": ([29448], [29448, 26376]),
        },
    },
    "nested_tensor": {
        # `linear` returns 8 rows of 8 float32; its offsets (24 bytes) already exist.
        ALL_STORAGES: {
            "linear: Activation": (280, 280 + 256),
            "linear: Total": (792, 792 + 256),
            "peak: Activation": (304, 536),
            "peak: Total": (816, 1048),
        },
    },
    "buffer_rebound": {
        REGISTERED: {
            f"{mark}: {category}": figures
            for mark, kept in (
                ("after forward", 4),
                ("after backward", 4),
                ("before forward #2", 0),
                ("after forward #2", 4),
                ("after backward #2", 4),
                ("peak", 8),
            )
            for category, figures in (
                ("Buffer", (0, 256)),
                ("Activation", (256 + kept, kept)),
            )
        },
    },
    "model_built_inside": {
        REGISTERED: {
            "built: Parameter": (0, 12672),
            "built: Activation": (12672 + 1024, 1024),
            "before forward: Parameter": (0, 12672),
            "before forward: Activation": (12672 + 1024, 1024),
        },
    },
    "two_roots_of_two_classes": {
        # `Tower` is differentiated after it: 4,224 of its gradients come, 1,024 of its ReLU go.
        OWN_BACKWARD: {
            "Sequential: Peak-Backward": ([35848], [32648]),
            "Sequential: Post-Backward": ([34824], [31624]),
            "Sequential.0: Peak-Backward": ([35848], [32648]),
            "Sequential.0: Post-Backward": ([34824], [31624]),
        },
    },
    "eval_then_train": {
        STRAY: {
            "Sequential: Post-Backward": ([26376, 26376], [26376]),
            "Sequential.0: Post-Backward": ([26376, 26376], [26376]),
            "Sequential.1: Post-Backward": ([23176, 26376], [23176]),
            "Sequential.2: Post-Backward": ([24200, 26376], [24200]),
            "Sequential.3: Post-Backward": ([19976, 26376], [19976]),
            "Sequential.4: Post-Backward": ([21000, 26376], [21000]),
            "Sequential.5: Post-Backward": ([16776, 26376], [16776]),
        },
    },
    "truncated_backpropagation": {
        UNDISTURBED: {
            "GRUCell: Peak-Backward": ([25992, 30344, 28104], [25992, 30344, 26440]),
        },
    },
    "exception_in_forward": {
        STRAY: {
            "Fails: Post-Backward": ([17928, 17928], [17928]),
            "Fails.first: Post-Backward": ([17928, 17928], [17928]),
        },
    },
    "exception_in_step": {
        # The activations of the next step (3 x 1,024) and its loss.
        CLOSED_STEP: {
            "after forward: Activation": (0, 3076),
            "after forward: Optstate": (3076, 0),
            "after backward: Activation": (0, 4),
            "after backward: Optstate": (4, 0),
            "after step: Activation": (0, 4),
            "after step: Optstate": (25372, 25368),
            "after zero_grad: Activation": (0, 4),
            "after zero_grad: Optstate": (25372, 25368),
            "peak: Activation": (0, 4),
            "peak: Optstate": (33692, 33688),
        },
    },
    "exception_in_backward": {
        LEFT_ACTIVE: {
            "Sequential: Peak-Forward": ([61084], [17792]),
            "Sequential.0: Peak-Forward": ([61084], [14720]),
            "Sequential: Post-Backward": (None, [26376]),
            "Sequential.0: Post-Backward": (None, [26376]),
        },
    },
    "exception_in_gradient_hook": {
        LEFT_ACTIVE: {
            "Sequential: Peak-Forward": ([61084], [19840]),
            "Sequential.0: Peak-Forward": ([61084], [16768]),
            "Sequential.2: Peak-Forward": ([61084], [17792]),
            "Sequential.2: Peak-Backward": ([28424], [25224]),
            "Sequential: Post-Backward": (None, [26376]),
            "Sequential.0: Post-Backward": (None, [26376]),
        },
    },
    "entry_between_forward_and_backward": {
        ENTRY: {"after backward: Gradient": (0, 4224), "after backward: Temp": (4224, 0)},
    },
    "checkpoint_keeps_rng_state": {
        RNG: {},  # see SHIFTS
    },
    "double_backward": {
        BACKWARDS: {
            "Sequential: Post-Backward": ([31496], [31496, 40076]),
            "Sequential.0: Post-Backward": ([31496], [31496, 40076]),
        },
    },
    "storage_resized_up_and_back": {
        RESIZE: {"peak: Other": (0, 1_048_576), "peak: Total": (0, 1_048_576)},
    },
    "cow_clone": {
        COPY_ON_WRITE: {"shared: Activation": (4096, 0), "shared: Total": (8192, 4096)},
    },
}

SHIFTS: dict[str, set[int]] = {
    # Each of the three checkpoints keeps one state, and a recompute holds another while it runs.
    "checkpoint_keeps_rng_state": {states * 5056 for states in (1, 2, 3, 4)},
    # Upstream's closures keep the activation (8 x 32 float32) on the path of the exception.
    "exception_in_backward": {-1024},
    "exception_in_gradient_hook": {-1024},
}
"""scenario -> allowed differences from upstream's figures besides the rows above"""
