# SPDX-License-Identifier: BSD-3-Clause
"""The blocks of a model, which are checkpointed and sharded one by one, and its FSDP2 units."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import chain

from torch import nn


def find_blocks(model: nn.Module) -> list[nn.Module]:
    """The classes that the model names in `_no_split_modules`, and the outermost lists of blocks.

    A list of blocks has several members with submodules and parameters. They may be of different
    classes (as in hybrid models) if at least one class repeats. No block contains another one.
    """
    listed = _find_lists(model)
    names = set(getattr(model, "_no_split_modules", None) or ())
    named = [each for each in model.modules() if type(each).__name__ in names and _is_block(each)]
    return _without_nested(model, [*named, *listed], names)


def find_parts(model: nn.Module) -> list[nn.Module]:
    """What is checkpointed in a model without blocks: the outermost modules with submodules and
    parameters. A module that has everything inside one child counts as that child.
    """
    children = [each for each in _called(model) if next(each.parameters(), None) is not None]
    if len(children) == 1:
        return find_parts(children[0])
    return [each for each in children if _is_block(each)]


def _called(model: nn.Module) -> Iterator[nn.Module]:
    """The children; of a list or a dictionary, which has no forward, its members."""
    for child in model.children():
        if isinstance(child, nn.ModuleList | nn.ModuleDict):
            yield from _called(child)
        else:
            yield child


def find_units(
    model: nn.Module, blocks: Sequence[nn.Module], wrap: int = 1
) -> list[list[nn.Module]]:
    """The modules of each FSDP2 unit but the root, in the order to shard them.

    Each `wrap` blocks are a unit. Modules of several blocks with the same parameters are a unit of
    their own, which comes first: FSDP2 requires that all modules with a parameter are in one unit.
    """
    owners = _find_owners(model, blocks)
    shared: dict[frozenset[int], list[nn.Module]] = {}
    for block in blocks:
        _collect_shared(block, owners, shared)
    units = [[*dict.fromkeys(modules)] for modules in shared.values()]
    done = {id(each) for each in chain.from_iterable(units)}
    held = set(chain.from_iterable(shared))
    rest = [block for block in blocks if id(block) not in done]
    own = _merge_owners(rest, owners, held)
    return units + [[*chain(*own[i : i + wrap])] for i in range(0, len(own), wrap)]


def parameter_share(model: nn.Module, modules: Iterable[nn.Module]) -> float:
    """The elements of the parameters of `modules`, as a fraction of those of the model."""
    owned = {id(each): each.numel() for module in modules for each in module.parameters()}
    return sum(owned.values()) / max(sum(each.numel() for each in model.parameters()), 1)


def _find_lists(model: nn.Module) -> list[nn.Module]:
    blocks: list[nn.Module] = []

    def visit(module: nn.Module) -> None:
        for child in module.children():
            members = [*child.children()]
            if _is_list_of_blocks(child, members):
                blocks.extend(each for each in members if _is_block(each))
            else:
                visit(child)

    visit(model)
    return blocks


def _is_list_of_blocks(module: nn.Module, members: Sequence[nn.Module]) -> bool:
    if not isinstance(module, nn.ModuleList | nn.ModuleDict | nn.Sequential):
        return False
    classes = [type(each) for each in members if _is_block(each)]
    if isinstance(module, nn.ModuleList):
        return len(classes) > len(set(classes))
    return len(members) == len(classes) > 1 and len(set(classes)) == 1


def _is_block(module: nn.Module) -> bool:
    has_children = next(module.children(), None) is not None
    return has_children and next(module.parameters(), None) is not None


def _without_nested(
    model: nn.Module, candidates: Sequence[nn.Module], names: Container[str]
) -> list[nn.Module]:
    """Keeps the outer one of two, unless it consists of several blocks that the model names.

    The result is in the order of the model.
    """
    wanted = {id(each) for each in candidates}

    def visit(module: nn.Module) -> list[nn.Module]:
        inner = [*chain.from_iterable(visit(child) for child in module.children())]
        if id(module) not in wanted:
            return inner
        named = [each for each in inner if type(each).__name__ in names]
        is_container = len(named) > 1 and parameter_share(module, named) > 0.5
        return inner if is_container else [module]

    return [*dict.fromkeys(visit(model))]


def _find_owners(model: nn.Module, blocks: Sequence[nn.Module]) -> dict[int, set[int]]:
    """For each parameter the positions of the blocks that have it; -1 is the rest of the model."""
    owners: dict[int, set[int]] = {}
    for position, block in enumerate(blocks):
        for parameter in block.parameters():
            owners.setdefault(id(parameter), set()).add(position)
    inside = {id(each) for block in blocks for each in block.modules()}
    for module in model.modules():
        if id(module) not in inside:
            for parameter in module.parameters(recurse=False):
                owners.setdefault(id(parameter), set()).add(-1)
    return owners


def _collect_shared(
    module: nn.Module, owners: dict[int, set[int]], shared: dict[frozenset[int], list[nn.Module]]
) -> None:
    """Adds the outermost modules all of whose parameters belong to the same several blocks."""
    parameters = [id(each) for each in module.parameters()]
    kinds = {frozenset(owners[each]) for each in parameters}
    if len(kinds) == 1 and len(kind := next(iter(kinds))) > 1 and -1 not in kind:
        shared.setdefault(frozenset(parameters), []).append(module)
    elif any(len(kind) > 1 for kind in kinds):
        for child in module.children():
            _collect_shared(child, owners, shared)


def _merge_owners(
    blocks: Sequence[nn.Module], owners: dict[int, set[int]], held: set[int]
) -> list[list[nn.Module]]:
    """Blocks that share a parameter which no unit holds are one unit, or else part of the root."""
    units: list[list[nn.Module]] = []
    parameters: list[set[int]] = []
    in_root: set[int] = {each for each, kind in owners.items() if len(kind) > 1 and -1 in kind}
    for block in blocks:
        own = {id(each) for each in block.parameters()} - held
        unit = [block]
        for other in [each for each in parameters if each & own]:
            position = parameters.index(other)
            unit = units.pop(position) + unit
            own |= parameters.pop(position)
        units.append(unit)
        parameters.append(own)
    return [unit for unit, own in zip(units, parameters, strict=True) if not own & in_root]
