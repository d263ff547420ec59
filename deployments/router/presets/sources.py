"""The sources of models: what the operator named, kept in a form that can be read again.

Arguments count more than a model's section, that more than `[*]`, that more than its folder.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path

from deployments.contract.served_adapters import SEPARATOR
from deployments.model.settings import application_name
from deployments.router.presets.hub_names import downloaded_folders
from deployments.router.presets.ini_file import ALL_MODELS, PresetError, Section, read_presets
from deployments.router.presets.keys import format_section
from deployments.router.presets.options import ModelOptions
from deployments.router.presets.paths import adapter_path, model_path, models_in
from deployments.router.settings import Preset


@dataclass(frozen=True, slots=True)
class FoundModel:
    """A model before the arguments: `location` is where its operator finds it.

    options: those of the presets file, for this model and for all.
    folder: the model that the operator's folder, or that of downloads, has of this name.
    """

    name: str
    source: str
    location: str
    options: ModelOptions
    folder: Path | None = None


@dataclass(frozen=True)
class Sources:
    """Paths are absolute; they are read where the router runs.

    argument: the model that the application's own arguments name; it comes first.
    demos: what comes with Manta and stands beside it, where it leaves their names free.
    overrides: what the arguments say of all models of the file and the folder.
    presets: an INI file.
    folder: of models, each a folder or a GGUF file.
    downloads: the folder of downloaded models.
    """

    argument: Preset | None = None
    demos: tuple[Preset, ...] = ()
    overrides: ModelOptions = field(default_factory=ModelOptions)
    presets: str | None = None
    folder: str | None = None
    downloads: str | None = None

    def read(self) -> list[Preset]:
        """All models that can be served, the default one first. Raises PresetError."""
        sections = {} if self.presets is None else read_presets(Path(self.presets))
        defaults = sections.pop(ALL_MODELS, Section(ALL_MODELS, 0)).options
        found = self._found(list(sections.values()), defaults)
        listed = [] if self.argument is None else [("the argument model", self.argument)]
        taken = set() if self.argument is None else _names(self.argument)
        listed += [("a demo", demo) for demo in self.demos if not taken & _names(demo)]
        listed += [(model.location, self._preset(model)) for model in found]
        if not listed:
            raise PresetError(f"there is no model in {self.presets or self.folder}")
        _check_names(listed)
        return [preset for _, preset in listed]

    def _found(self, sections: Sequence[Section], defaults: ModelOptions) -> Iterable[FoundModel]:
        folders, downloaded = self._folders(), self._downloaded()
        for section in sections:
            location, options = f"{self.presets}:{section.line}", section.options.over(defaults)
            download = downloaded.pop(section.name, None)
            folder = folders.pop(section.name, None) or download
            if options.model is None and folder is None:
                raise PresetError(
                    f"{location}: [{section.name}] {self._without_model(section.name)}"
                )
            is_download = options.model is None and folder is download
            source = "download" if is_download else "preset"
            yield FoundModel(section.name, source, location, options, folder)
        for source, left in (("folder", folders), ("download", downloaded)):
            for name, path in left.items():
                yield FoundModel(name, source, str(path), defaults, path)

    def _folders(self) -> dict[str, Path]:
        try:
            return {} if self.folder is None else models_in(Path(self.folder))
        except (OSError, ValueError) as error:
            raise PresetError(f"models_dir: {error}") from error

    def _downloaded(self) -> dict[str, Path]:
        try:
            return {} if self.downloads is None else downloaded_folders(Path(self.downloads))
        except (OSError, ValueError) as error:
            raise PresetError(f"downloads_dir: {error}") from error

    def _without_model(self, name: str) -> str:
        needs = "needs model = PATH or hf-repo = OWNER/NAME"
        if self.folder is None:
            return needs
        near = get_close_matches(name, self._folders(), n=1)
        hint = f"; did you mean [{near[0]}]?" if near else ""
        return f"{needs}, because {self.folder} has no model of that name{hint}"

    def _preset(self, found: FoundModel) -> Preset:
        folder = ModelOptions() if found.folder is None else ModelOptions(model=str(found.folder))
        try:
            located = with_absolute_paths(found.options, Path(self.presets or "/").parent)
            text = (
                format_section(found.name, located)
                if found.source == "preset" or located.given()
                else ""
            )
            options = self.overrides.over(located).over(folder)
            return options.preset(found.name, source=found.source, text=text)
        except (OSError, RuntimeError, ValueError) as error:  # the first two from odd paths
            raise PresetError(f"{found.location}: [{found.name}] {error}") from error


def with_absolute_paths(options: ModelOptions, base: Path) -> ModelOptions:
    """Returns the options with whole paths for those that start at `base`; raises ValueError."""
    found: dict[str, object] = {}
    if options.model is not None:
        found["model"] = model_path(options.model, base)
    if options.draft_model is not None:
        found["draft_model"] = model_path(options.draft_model, base)
    if options.adapters:
        found["adapters"] = tuple(
            adapter.model_copy(update={"path": adapter_path(adapter.path, base)})
            for adapter in options.adapters
        )
    if options.lora_modules:
        found["lora_modules"] = tuple(
            adapter.model_copy(update={"path": adapter_path(adapter.path, base)})
            for adapter in options.lora_modules
        )
    return options.model_copy(update=found)


def _names(preset: Preset) -> set[str]:
    return {
        preset.settings.name,
        *preset.aliases,
        *(adapter.name for adapter in preset.served_adapters),
    }


def _check_names(listed: Iterable[tuple[str, Preset]]) -> None:
    """A request's `model` has to mean one model, and an application has to be of one."""
    names: dict[str, tuple[str, str]] = {}
    applications: dict[str, str] = {}
    for location, preset in listed:
        own = preset.settings.name
        for name in (own, *preset.aliases):
            _claim(names, name, (own, location))
            for adapter in preset.served_adapters:
                claimant = (f"{own}{SEPARATOR}{adapter.name}", location)
                _claim(names, f"{name}{SEPARATOR}{adapter.name}", claimant)
                _claim(names, adapter.name, claimant)
        other = applications.setdefault(preset.settings.application, own)
        if other != own:
            raise PresetError(
                f"{location}: the names {other} and {own} differ in marks that the application's "
                f"name {application_name(own)} can't have"
            )


def _claim(names: dict[str, tuple[str, str]], name: str, claimant: tuple[str, str]) -> None:
    other = names.setdefault(name, claimant)
    if other != claimant:
        taken = f"is taken by [{other[0]}] ({other[1]})"
        raise PresetError(f"{claimant[1]}: the name {name} of [{claimant[0]}] {taken}")
