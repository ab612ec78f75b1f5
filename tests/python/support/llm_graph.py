# SPDX-License-Identifier: BSD-3-Clause
"""The modules of a language model with fixed bytes and times, those of upstream's FSDP test."""

from __future__ import annotations

from typing import Any, cast

from tidegauge.ilp_utils import ModuleInfo

_BLOCK = {
    "": (453095424, 390202368, 482486272, 276836352, 18.58635896281287, 42.31444884235838),
    ".attention": (150994944, 107054080, 224520192, 100663296, 6.9141460617659, 16.190205050846),
    ".feed_forward": (302051328, 207618048, 482486272, 276836352, 11.490126128560, 25.499871304739),
}


def row(fqn: str, sizes: Any, grad_total: int, act_total: int, output: int) -> dict[str, Any]:
    parameters, forward, backward, grads, fw_time, bw_time = sizes
    return {
        "fqn": fqn,
        "param_per_module": parameters,
        "grad_per_module": parameters,
        "grad_total": grad_total,
        "act_fw_per_module": forward,
        "act_bw_per_module": backward,
        "act_grad_per_module": grads,
        "act_total": act_total,
        "input_per_module": 0 if fqn == "Transformer" else 25165824,
        "output_per_module": output,
        "fw_runtime_per_module": fw_time,
        "bw_runtime_per_module": bw_time,
    }


def llm_info() -> ModuleInfo:
    """Four blocks of an attention and an MLP, and an output layer."""
    root = (1960000000, 2548856832, 482486272, 402665472, 115.51510375623819, 262.8396350763604)
    head = (100663296, 0, 2615966720, 125829120, 3.7249330481443956, 8.000336731209435)
    rows = [row("Transformer", root, 0, 2683074560, 67108864)]
    for i in range(4):
        gradients = 906215424 + (3 - i) * 453095424  # of what comes after
        activations = 526525440 + i * 415368192
        for part, sizes in _BLOCK.items():
            is_attention = part == ".attention"
            # The graph of the test has the activations of block 0 in the MLP of block 1, too.
            is_odd = i == 1 and part == ".feed_forward"
            rows.append(
                row(
                    f"Transformer.layers.{i}{part}",
                    sizes,
                    gradients + is_attention * 302075904,
                    526525440 if is_odd else activations - is_attention * 257966080,
                    25165824,
                )
            )
    rows.append(row("Transformer.output", head, 0, 2695657472, 67108864))
    names = [each["fqn"] for each in rows]
    blocks = [names[i : i + 3] for i in range(1, 13, 3)]
    post = [name for block in blocks for name in (*block[1:], block[0])]
    order = {
        "fw_pre_order": names,
        "fw_post_order": [*post, "Transformer.output", "Transformer"],
        "bw_pre_order": ["Transformer", "Transformer.output"]
        + [name for block in reversed(blocks) for name in (block[0], block[2], block[1])],
        "bw_post_order": ["Transformer.output"]
        + [name for block in reversed(blocks) for name in (block[2], block[1], block[0])]
        + ["Transformer"],
    }
    return cast(ModuleInfo, {"mod_order": order, "mod_stats": rows})
