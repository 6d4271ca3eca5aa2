"""protogate codecs, and protogate codec check."""

from __future__ import annotations

import sys
from io import StringIO
from pathlib import Path

import pytest
from zope.interface import implementer_only

import twisted.plugins
from protogate.cli import main
from protogate.interfaces import IStreamCodec
from protogate.testing.codec import CodecContract
from protogate.testing.report import check
from protogate_http.http1 import Http1

MINI = Path(__file__).parent.parent / "mini_codec"


def run(*arguments: str) -> tuple[int, str]:
    out = StringIO()
    return main(arguments, out), out.getvalue()


def drop_in(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Install a drop-in that says that, for one test."""
    (folder / f"{folder.name.replace('-', '_')}_plugin.py").write_text(
        f"from protogate.interfaces import ICommand, IStreamCodec\nfrom protogate.plugins import Plugin\n{text}\n"
    )
    monkeypatch.setattr(twisted.plugins, "__path__", [*twisted.plugins.__path__, str(folder)])


@pytest.fixture
def mini(monkeypatch: pytest.MonkeyPatch) -> None:
    """A codec from outside is installed."""
    monkeypatch.syspath_prepend(str(MINI))
    monkeypatch.setattr(twisted.plugins, "__path__", [*twisted.plugins.__path__, str(MINI / "twisted" / "plugins")])


def test_every_codec_is_listed_with_what_it_tells(mini: None) -> None:
    status, text = run("codecs")
    assert status == 0
    assert [line for line in text.splitlines() if line[0] != " "] == ["http1", "http2", "mini", "sotp"]
    assert "  cannot say   continue, deadline, goaway, head\n" in text
    assert "  version      protogate-mini, which is not installed as a distribution\n" in text
    assert "  not with HTTP/1.0 peers: trailers, interim, continue, upgrade\n" in text
    assert text.count("  version      protogate 0.") == 3
    assert text.count("  can be read  yes") == 4
    assert "  options      none\nhttp2\n" in text
    assert "\n  engine       ngh2 " in text
    assert "\n  falls short  a malformed head is reset, and not answered; " in text
    assert "\n               an END_STREAM alone waits while " in text
    assert "  options      none\nsotp\n" in text
    assert (
        "  options      codecs.sotp of the configuration, and their defaults\n    heartbeat         1m     Int" in text
    )
    assert "\n    window            64KiB  Content of one request or answer that may come " in text
    assert "\n    compression       true   Whether " in text


@implementer_only(IStreamCodec)
class Plain(Http1):
    """No word about itself."""

    alpn = ()


def test_a_codec_that_tells_nothing_is_listed_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drop_in(tmp_path, monkeypatch, f'plain = Plugin(IStreamCodec, "plain", "{__name__}.Plain")')
    monkeypatch.setitem(sys.modules, __name__, sys.modules[__name__])
    status, text = run("codecs")
    assert status == 0
    assert f"plain\n  made by      {__name__}.Plain\n  ALPN         none\n" in text
    assert "  cannot say   (the codec does not tell)\n  can be read  no\n" in text


def test_a_codec_that_cannot_be_used_is_listed_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drop_in(tmp_path, monkeypatch, 'broken = Plugin(IStreamCodec, "broken", "nowhere.Codec")')
    status, text = run("codecs")
    assert status == 1
    assert text.startswith("broken\n  unusable     the codec named 'broken' cannot be made from nowhere.Codec")
    assert "\nhttp1\n" in text


def test_a_codec_from_outside_is_held_to_the_contract_by_its_name_alone(mini: None) -> None:
    status, text = run("codec", "check", "mini")
    *tests, last = text.splitlines()
    assert status == 0
    assert last.startswith("mini: keeps the contract: ")
    assert "ok     what was said can be read" in tests
    assert "-      expect continue: the protocol cannot say: continue" in tests
    assert not [line for line in tests if line.startswith("BROKEN")]


def test_what_it_lacks_may_be_said_for_it(mini: None) -> None:
    status, text = run("codec", "check", "mini", "--lacks", "continue,deadline,goaway,trailers")
    assert status == 1
    assert "BROKEN head: " in text
    assert ": the protocol cannot say: trailers\n" in text
    assert "mini: does NOT keep the contract: " in text


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        (["nothing"], 1, "no codec named 'nothing'; installed: http1, http2, "),
        (["http1", "--lacks", "trailers,sense"], 2, "--lacks knows continue, deadline, fields, goaway, "),
    ],
)
def test_what_cannot_be_checked(
    arguments: list[str], status: int, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("codec", "check", *arguments) == (status, "")
    assert f"protogate codec check: {text}" in capsys.readouterr().err


def test_each_way_to_fail_is_told_and_a_test_counts_once() -> None:
    class Suite(CodecContract):
        def test_codec(self) -> None:
            self.fail("not\nthis")

        def test_connections(self) -> None:
            self.addCleanup(self.fail, "nor that")
            raise LookupError("gone")

    out = StringIO()
    assert check("mine", Http1, out, verbose=True, suite=Suite) is False
    text = out.getvalue()
    assert "BROKEN codec: not\n" in text
    assert "BROKEN connections: LookupError: gone\n" in text
    assert "BROKEN connections: FailTest: nor that\n" in text
    assert "Traceback" in text
    assert ", 2 broken, " in text.splitlines()[-1]
