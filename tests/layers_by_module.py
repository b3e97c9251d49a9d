"""A contract for import-linter: layers in which a module may stand elsewhere than the room around it.

The layers contract of import-linter takes rooms whole. Ours has a few modules that stand higher than their room
(``cluster.live`` drives policies, the rest of ``cluster`` is below them), so the layer of a module is that of the
longest name listed that it is, or lies in. Every module has a layer; each direct import goes down or stays level, and
so does every chain of them.
"""

from __future__ import annotations

from grimp import ImportGraph
from importlinter.application import output
from importlinter.domain import fields
from importlinter.domain.contract import Contract, ContractCheck


class LayersByModule(Contract):
    """Layers from the top down, the modules of one separated by ``|``; those of one may import each other."""

    type_name = "layers_by_module"

    root = fields.StringField()
    layers = fields.ListField(subfield=fields.StringField())

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Every import that goes up, and every module without a layer."""
        height = {
            f"{self.root}.{name.strip()}": number
            for number, layer in enumerate(reversed(self.layers))
            for name in layer.split("|")
        }

        def layer_of(module: str) -> int | None:
            while module not in height and module != self.root:
                module = module.rpartition(".")[0]
            return height.get(module)

        upward, homeless = [], sorted(set(height) - graph.modules)
        for module in sorted(graph.modules - {self.root}):
            own = layer_of(module)
            if own is None:
                # A package whose modules all have layers needs none for its page of names.
                if not graph.find_children(module) or graph.find_modules_directly_imported_by(module) - {self.root}:
                    homeless.append(module)
                continue
            for imported in sorted(graph.find_modules_directly_imported_by(module) - {self.root}):
                other = layer_of(imported)
                if other is not None and other > own:
                    upward.append(f"{module} -> {imported}")
        return ContractCheck(kept=not upward and not homeless, metadata={"upward": upward, "homeless": homeless})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """What is wrong, a line each."""
        for line in check.metadata["upward"]:
            output.print_error(f"goes up: {line}")
        for name in check.metadata["homeless"]:
            output.print_error(f"no such module, or a module without a layer: {name}")
