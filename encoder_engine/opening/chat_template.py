"""Reads a reranker's chat template, a Jinja template of messages, and renders pairs with it.

Templates are untrusted parts of models, so they run in Jinja's sandbox, as in transformers.
"""

from __future__ import annotations

import importlib.metadata
import json
import re
from datetime import datetime
from typing import TYPE_CHECKING, Any, NoReturn, Self

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import ConfigError, MissingDependencyError, UnsupportedFeatureError
from encoder_engine.files import read_text
from encoder_engine.json_values import JsonValue
from encoder_engine.opening.json_files import read_value

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["ChatSettings", "ChatTemplate", "read_limit"]

FILE, FOLDER = "chat_template.jinja", "additional_chat_templates"
TOKENIZER_CONFIG = "tokenizer_config.json"
# Older versions have known ways out of the sandbox.
LEAST_JINJA = (3, 1, 6)
# The keywords of apply_chat_template that are no variables of a template.
_NO_VARIABLES = (
    *("conversation", "messages", "tools", "documents", "continue_final_message", "tokenize"),
    *("sanitize_control_tokens", "padding", "truncation", "max_length", "return_tensors"),
    *("return_dict", "return_assistant_tokens_mask", "tokenizer_kwargs"),
)
_SPECIAL_TOKENS = tuple(f"{name}_token" for name in ("bos", "eos", "unk", "sep", "pad", "cls"))
_SPECIAL_TOKENS += ("mask_token",)
# sentence-transformers' signs of a template whose messages are lists of typed parts.
_STRUCTURED_SIGNS = ("content[0]", ".type", "'type'", '"type"', "item.type", "message.content[")
# The model types whose templates these signs misjudge.
_FLAT_TYPES = ("apertus", "deepseek_v3", "gpt_oss", "seed_oss")
_ADVICE = "; pass template=PairTemplate(...) with the words around a pair"


@dataclass(frozen=True, kw_only=True)
class ChatSettings:
    """The keys of a Transformer module that decide how a pair is rendered as a text.

    message_format: ``"flat"``, ``"structured"`` or ``"auto"``; None: no messages; a pair is
    tokenized as a pair.
    template: the name of a template, or a template; None: the default template.
    variables: further variables of the template, such as ``add_generation_prompt``.
    """

    message_format: str | None = None
    template: str | None = None
    variables: Mapping[str, Any]

    @classmethod
    def read(cls, config: JsonValue) -> Self:
        """Read the settings from a Transformer module's file, as sentence-transformers 6.2 does.

        Raises :class:`UnsupportedFeatureError` for a setting that is not implemented.
        """
        kind = None
        message = (config.get("modality_config").optional(JsonValue.members) or {}).get("message")
        if message is not None:
            message.only_keys(("method", "method_output_name", "format"))
            stated = message.object().get("method"), message.object().get("method_output_name")
            if stated != ("forward", "logits"):
                raise UnsupportedFeatureError(
                    f"{message.where} must read the encoder's logits, got {message.value}"
                )
            formats = {name: name for name in ("flat", "structured", "auto")}
            kind = (
                "auto" if message.get("format").is_null else message.get("format").one_of(formats)
            )
        calls = config.get("processing_kwargs").optional(JsonValue.members) or {}
        for name, value in calls.items():
            if name not in ("text", "chat_template") and value.value:
                raise UnsupportedFeatureError(f"{value.where} is not implemented")
        if "text" in calls:
            calls["text"].only_keys(("max_length",))
        variables = dict(calls["chat_template"].members()) if "chat_template" in calls else {}
        for name in _NO_VARIABLES:
            if name in variables:
                raise UnsupportedFeatureError(f"{variables[name].where} is not implemented")
        if "restore_suffix" in variables and not variables.pop("restore_suffix").boolean():
            raise UnsupportedFeatureError(
                f"{config.where}: restore_suffix: false is not implemented: a long pair would be "
                "scored where its document is cut"
            )
        named = variables.pop("chat_template", None)
        return cls(
            message_format=kind,
            template=None if named is None else named.optional(JsonValue.string),
            variables={name: value.value for name, value in variables.items()},
        )


def read_limit(config: JsonValue) -> int | None:
    """Return the most tokens of a pair that a Transformer module's file states.

    None: it states none, and the tokenizer's limit counts.
    """
    for key in ("processing_kwargs", "text"):
        if config.get(key).is_null:
            return None
        config = config.get(key)
    return config.get("max_length").optional(JsonValue.positive)


class ChatTemplate:
    """A directory's chat template, which renders a query and a document as one text.

    Raises :class:`ConfigError` if there is no template, it cannot be rendered, or its result lacks
    one of the texts, :class:`UnsupportedFeatureError` if it uses a special token that no file
    states, and :class:`MissingDependencyError` without Jinja (extra ``chat``).
    """

    def __init__(self, folder: Path, settings: ChatSettings, model_type: str) -> None:
        self.source, self.where, structured = _choose_template(folder, settings, model_type)
        self._structured = structured
        self.variables = {"add_generation_prompt": False, **settings.variables}
        environment = _environment()
        try:
            names = _undeclared_variables(environment, self.source)
            self._template = environment.from_string(self.source)
        except Exception as error:
            raise ConfigError(f"{self.where} is not a template: {error}{_ADVICE}") from error
        self.variables = _special_tokens(folder, names) | self.variables
        whole = self.render("", "q", "d")
        for name, query, document in (("query", "other", "d"), ("document", "q", "other")):
            if self.render("", query, document) == whole:
                raise ConfigError(
                    f"{self.where} does not put the {name} anywhere: it is not the template of a "
                    f"reranker{_ADVICE}"
                )

    def render(self, prompt: str, query: str, document: str) -> str:
        """Return a query and a document as one text.

        prompt: the text of a system message before the pair; empty: no system message. Raises
        :class:`ConfigError` where the template fails on the texts.
        """
        contents: list[tuple[str, Any]] = [("system", prompt)] if prompt else []
        contents += [("query", query), ("document", document)]
        if self._structured:
            contents = [(role, [{"type": "text", "text": text}]) for role, text in contents]
        messages = [{"role": role, "content": content} for role, content in contents]
        try:
            rendered: str = self._template.render(
                messages=messages, tools=None, documents=None, **self.variables
            )
        except Exception as error:
            raise ConfigError(f"{self.where} cannot be rendered: {error}{_ADVICE}") from error
        return rendered


def _choose_template(
    folder: Path, settings: ChatSettings, model_type: str
) -> tuple[str, str, bool]:
    """Return the template to use, its name for errors, and whether messages are structured."""
    templates, where = _read_templates(folder)
    is_single = isinstance(templates, str)
    wanted = settings.template
    if isinstance(templates, str):
        source = templates if wanted is None else wanted
    elif wanted is None and "default" not in templates:
        known = ", ".join(sorted(templates)) or "none"
        raise ConfigError(
            f"{folder} formats pairs by a chat template, and has no default one (its templates: "
            f"{known}){_ADVICE}"
        )
    else:
        # As in transformers, a name that is no template's is a template.
        source = templates.get(wanted or "default", wanted or "")
        where = f"{where}, template {(wanted or 'default')[:40]!r}"
    kind = settings.message_format
    if kind == "auto":
        is_flat = is_single and not any(sign in templates for sign in _STRUCTURED_SIGNS)
        kind = "flat" if is_flat or model_type in _FLAT_TYPES else "structured"
    return source, where, kind == "structured"


def _read_templates(folder: Path) -> tuple[str | dict[str, str], str]:
    """Return a folder's only template, or all by name, and the file they were read from.

    Template files take precedence over tokenizer_config.json, as in transformers.
    """
    paths = {path.stem: path for path in sorted((folder / FOLDER).glob("*.jinja"))}
    if (folder / FILE).is_file():
        paths["default"] = folder / FILE
    found = {name: read_text(path, ConfigError) for name, path in paths.items()}
    if found.keys() == {"default"}:
        return found["default"], str(folder / FILE)
    path = folder / TOKENIZER_CONFIG
    if found or not path.is_file():
        return found, str(folder)
    stated = read_value(path).get("chat_template")
    if isinstance(stated.value, list):
        return {
            one.get("name").string(): one.get("template").string() for one in stated.items()
        }, stated.where
    return ({} if stated.is_null else stated.string()), stated.where


def _special_tokens(folder: Path, names: set[str]) -> dict[str, str]:
    """Return the tokens that a template's variables ``names`` stand for, such as special tokens.

    Raises :class:`UnsupportedFeatureError` for a special token that no file states: for such
    tokens, classes of transformers have defaults of their own.
    """
    found: dict[str, str] = {}
    wanted = [name for name in _SPECIAL_TOKENS if name in names]
    for file in (TOKENIZER_CONFIG, "special_tokens_map.json"):
        path = folder / file
        if not wanted or not path.is_file():
            continue
        stated = read_value(path)
        for name in [name for name in wanted if name in stated.object()]:
            wanted.remove(name)
            found |= _stated_token(name, stated.get(name))
    if wanted:
        raise UnsupportedFeatureError(
            f"the chat template of {folder} uses {', '.join(wanted)}, which {TOKENIZER_CONFIG} "
            "does not state; add it there"
        )
    if (folder / TOKENIZER_CONFIG).is_file():
        own = _own_tokens(read_value(folder / TOKENIZER_CONFIG))
        for name in (names & own.keys()) - {*_SPECIAL_TOKENS}:
            found |= _stated_token(name, own[name])
    return found


def _own_tokens(config: JsonValue) -> dict[str, JsonValue]:
    """Return the tokens that a tokenizer's settings add, such as ``image_token``, by name."""
    own = {name: token for name, token in config.members().items() if name.endswith("_token")}
    for key in ("extra_special_tokens", "model_specific_special_tokens"):
        if isinstance(config.get(key).value, dict):
            own |= config.get(key).members()
    return {name: token for name, token in own.items() if isinstance(token.value, (str, dict))}


def _stated_token(name: str, token: JsonValue) -> dict[str, str]:
    """Return {name: the text of a token}, or {} for null."""
    if isinstance(token.value, dict):
        token = token.get("content")
    return {} if token.is_null else {name: token.string()}


def _environment() -> Any:
    """Make the sandboxed Jinja environment of templates, as transformers does."""
    try:
        from jinja2 import TemplateError
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        version = importlib.metadata.version("jinja2")
    except ImportError:
        raise _missing_jinja() from None
    numbers = re.findall(r"\d+", version)[:3]
    if tuple(map(int, numbers)) < LEAST_JINJA:
        raise _missing_jinja()

    def raise_exception(message: str) -> NoReturn:
        raise TemplateError(message)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _to_json
    environment.globals |= {
        "raise_exception": raise_exception,
        "strftime_now": lambda pattern: datetime.now().strftime(pattern),
    }
    return environment


def _missing_jinja() -> MissingDependencyError:
    least = ".".join(map(str, LEAST_JINJA))
    return MissingDependencyError(
        "the chat template of a reranker", library=f"jinja2>={least}", extra="chat"
    )


def _to_json(value: Any, ensure_ascii: bool = False, **options: Any) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, **options)


def _undeclared_variables(environment: Any, source: str) -> set[str]:
    from jinja2 import meta

    found: set[str] = meta.find_undeclared_variables(environment.parse(source))
    return found
