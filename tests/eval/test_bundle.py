"""Bundles: the same run packs to the same bytes, every reader takes them, nothing tampered or hostile gets by."""

import gzip
import hashlib
import io
import json
import lzma
import os
import shutil
import tarfile
from collections.abc import Callable, Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from rich.console import Console

from seedbench.bundle import LIMITS, PACKED_LOG, check_files, opened, pack, read_submission
from seedbench.errors import SeedBenchError, UsageError
from seedbench.evaluate import evaluate
from seedbench.logs import lines, seal
from seedbench.panels import write_panel
from seedbench.policies.base import Response
from seedbench.runs import LOG, MANIFEST, SUMMARY, Run, finished, read_episodes
from seedbench.subject import SUBMISSION, subject
from seedbench.tables import load_summary
from seedbench.ui.live import Progress
from seedbench.ui.viewer import EpisodeIndex
from seedbench.verify import Report, verify
from tests.eval.helpers import Babbler, CountingSuite, Script, command_line, installed, job, panel, said
from tests.eval.hostile import archive, member, refused

Record = dict[str, Any]
PANEL = "panel.jsonl"
NAMES = sorted(LIMITS)


@pytest.fixture(autouse=True)
def suite() -> Iterator[CountingSuite]:
    counting = CountingSuite()
    with installed("counting", counting):
        yield counting


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `run`, the file of its panel, and `run` packed as `bundle` and `bundle.tar.gz`."""
    folder = tmp_path_factory.mktemp("honest")
    write_panel(panel(), folder / PANEL)
    with installed("counting", CountingSuite()):
        evaluate(job(folder / "run", Babbler(jitter=False), keep_prompts=True), Progress())
    pack(folder / "run", folder / "bundle", model="tiny", method="babble", submitter="me", url="https://example.org")
    pack(folder / "run", folder / "bundle.tar.gz", model="tiny", method="babble", submitter="me")
    return folder


@pytest.fixture
def bundle(honest: Path, tmp_path: Path) -> Path:
    """A copy of the honest bundle that a test may change."""
    return shutil.copytree(honest / "bundle", tmp_path / "bundle")


def checked(folder: Path, tasks: int = 4) -> Report:
    write_panel(panel(tasks), folder.parent / PANEL)
    return verify(folder, panel=str(folder.parent / PANEL))


def rewrite(bundle: Path, name: str, content: bytes) -> None:
    """Another content, and in submission.json the sizes and hashes that fit it."""
    (bundle / name).write_bytes(content)
    claimed = json.loads((bundle / SUBMISSION).read_text())
    claimed["files"][name] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    claimed["log"] = seal(bundle / LOG)
    (bundle / SUBMISSION).write_text(json.dumps(claimed))


def edit_json(bundle: Path, name: str, change: Callable[[Record], object]) -> None:
    data = json.loads((bundle / name).read_text())
    change(data)
    rewrite(bundle, name, json.dumps(data).encode())


def rewrite_log(bundle: Path, records: list[bytes]) -> None:
    """Another log, with every hash that a forger can make fit: the submission's and the manifest's."""
    rewrite(bundle, PACKED_LOG, lzma.compress(b"".join(records)))
    edit_json(bundle, MANIFEST, lambda m: m["sessions"][-1].update(log=seal(bundle / LOG)))


def records(bundle: Path) -> list[Record]:
    return [json.loads(line) for line in lines(bundle / LOG)]


def dumped(found: list[Record]) -> list[bytes]:
    return [json.dumps(record).encode() + b"\n" for record in found]


# What a bundle is


def test_a_bundle_holds_the_run(honest: Path) -> None:
    bundle, run = honest / "bundle", honest / "run"
    assert sorted(path.name for path in bundle.iterdir()) == NAMES
    assert lzma.decompress((bundle / PACKED_LOG).read_bytes()) == (run / LOG).read_bytes()
    assert (bundle / SUMMARY).read_bytes() == (run / SUMMARY).read_bytes()
    held, ours = (json.loads((folder / MANIFEST).read_text()) for folder in (bundle, run))
    assert {**held, "sessions": []} == {**ours, "sessions": []}
    claimed = read_submission(bundle)
    assert (claimed.model, claimed.method, claimed.submitter, claimed.note) == ("tiny", "babble", "me", "")
    assert claimed.log.bytes == (run / LOG).stat().st_size
    assert claimed.files["manifest.json"].sha256 == hashlib.sha256((bundle / MANIFEST).read_bytes()).hexdigest()
    assert check_files(bundle) == []


def test_folders_of_the_machine_are_not_published(honest: Path, tmp_path: Path) -> None:
    run = shutil.copytree(honest / "run", tmp_path / "run")
    manifest = json.loads((run / MANIFEST).read_text())
    words = ["seedbench", "eval", "/home/me/models/mine", "--out", "runs/a b/c", "--panel=/data/p.jsonl", "~/x/y"]
    manifest["sessions"][0]["command"] = [*words, "openai:http://host:8000/v1/chat#m", "searchqa/nq"]
    (run / MANIFEST).write_text(json.dumps(manifest))
    bundle = pack(run, tmp_path / "bundle", model="tiny", method="babble")
    published = ["seedbench", "eval", "mine", "--out", "runs/a b/c", "--panel=p.jsonl", "y"]
    command = json.loads((bundle / MANIFEST).read_text())["sessions"][0]["command"]
    assert command == [*published, "openai:http://host:8000/v1/chat#m", "searchqa/nq"]
    assert checked(bundle).first == ()


def test_packing_twice_gives_equal_bytes(honest: Path, tmp_path: Path) -> None:
    again = pack(honest / "run", tmp_path / "other.tar.gz", model="tiny", method="babble", submitter="me")
    assert again.read_bytes() == (honest / "bundle.tar.gz").read_bytes()
    with tarfile.open(again) as tar:
        assert [(m.name, m.mtime, m.uid, m.uname, m.mode) for m in tar] == [(n, 0, 0, "", 0o644) for n in NAMES]
    assert sorted(tmp_path.iterdir()) == [again]


def test_every_reader_takes_it(honest: Path) -> None:
    run = honest / "run"
    with opened(honest / "bundle") as folder:
        assert folder == honest / "bundle"
    with opened(honest / "bundle.tar.gz") as folder:
        assert list(read_episodes(folder)) == list(read_episodes(run))
        assert finished(folder) == finished(run)
        assert load_summary(folder) == load_summary(run)
        assert (subject(folder).model, subject(folder).method) == ("tiny", "babble")
        index = EpisodeIndex(folder / LOG)
        assert [index[number] for number in (11, 0, 5)] == [list(read_episodes(run))[n] for n in (11, 0, 5)]
        report = verify(folder, panel=str(honest / PANEL))
        assert (report.first, report.episodes) == ((), 12)
    assert not folder.exists()


def test_who_was_measured_is_what_the_run_says_where_nobody_else_does(honest: Path, tmp_path: Path) -> None:
    made = read_submission(pack(honest / "run", tmp_path / "bundle"))
    assert (made.model, made.method) == (subject(honest / "run").model, subject(honest / "run").method)


def test_a_bundle_is_never_written_to(bundle: Path) -> None:
    settings = json.loads((bundle / MANIFEST).read_text())["settings"]
    before = {path.name: path.read_bytes() for path in bundle.iterdir()}
    with pytest.raises(UsageError, match="is a bundle, which is only read; choose another folder"):
        Run(bundle, settings, {})
    with pytest.raises(UsageError, match="is a bundle, which is only read"):
        evaluate(job(bundle, Babbler()), Progress())
    assert {path.name: path.read_bytes() for path in bundle.iterdir()} == before


def test_packing_refuses(honest: Path, tmp_path: Path) -> None:
    run = honest / "run"
    (tmp_path / "taken").mkdir()
    wrong: list[tuple[Path, str, Record, str]] = [
        (run, "taken", {}, "exists: give the bundle another name"),
        (tmp_path, "new", {}, "is not a run folder"),
        (honest / "bundle", "new", {}, "is a bundle already"),
        (run, "new", {"model": "a\nb"}, "a submission's model cannot be so"),
        (run, "new.tar.gz", {"url": "javascript:alert(1)"}, "a submission's url cannot be so"),
        (run, "new", {"note": "x" * 2001}, "a submission's note cannot be so"),
    ]
    for source, target, texts, sentence in wrong:
        with pytest.raises(UsageError, match=sentence):
            pack(source, tmp_path / target, **texts)
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]
    copy = shutil.copytree(run, tmp_path / "run")
    (copy / LOG).unlink()
    os.mkfifo(copy / LOG)  # nobody will ever write to it
    with pytest.raises(SeedBenchError, match=f"has no {LOG}"):
        pack(copy, tmp_path / "new")


# Tampering, by somebody who makes all hashes fit


def failures(found: list[Record]) -> list[int]:
    return [number for number, record in enumerate(found) if not record["success"]]


def flip(found: list[Record]) -> None:
    found[failures(found)[0]].update(success=True, score=1.0, outcome="solved")


def replace_action(found: list[Record]) -> None:
    found[0]["turns"][0]["action"] = "cheat"


def replace_observation(found: list[Record]) -> None:
    found[0]["turns"][0]["observation"] = "all is well"


LOGS: dict[str, tuple[Callable[[list[Record]], object], str]] = {
    "flipped success": (flip, ", repeat 0: outcome: "),
    "edited action": (replace_action, ", turn 1: action: stored 'cheat', found "),
    "changed observation": (replace_observation, ", turn 1: observation: stored 'all is well', found "),
    "dropped failure": (lambda found: found.pop(failures(found)[0]), ", repeat 0: the log has no episode of it."),
    "duplicated episode": (lambda found: found.append(found[0]), ": the log has a second episode of it"),
}


@pytest.mark.parametrize("what", LOGS)
def test_tampered_log(bundle: Path, what: str) -> None:
    change, sentence = LOGS[what]
    found = records(bundle)
    change(found)
    rewrite_log(bundle, dumped(found))
    assert check_files(bundle) == []
    assert sentence in checked(bundle).first[0], checked(bundle).first


def test_swapped_panel(bundle: Path) -> None:
    assert checked(bundle, tasks=3).first[0].startswith("panel: 'counting/train@1' has the hash ")
    edit_json(bundle, MANIFEST, lambda m: m["settings"]["panel"].update(hash="0" * 64))
    assert "panel: 'counting/train@1' has the hash " in checked(bundle).first[0]


def test_edited_summary(bundle: Path) -> None:
    edit_json(bundle, SUMMARY, lambda s: s["success"]["micro"].update(rate=0.99))
    assert checked(bundle).first[0].startswith(f"{SUMMARY}: success.micro.rate: stored 0.99, found ")


def test_truncated_log(bundle: Path) -> None:
    whole = dumped(records(bundle))
    rewrite_log(bundle, [*whole[:-1], whole[-1][:-40]])
    assert checked(bundle).first[0] == f"{LOG} line 12 is cut off."
    edit_json(bundle, MANIFEST, lambda m: m["sessions"][-1].update(log={"bytes": 10**6, "sha256": "0" * 64}))
    rewrite(bundle, PACKED_LOG, lzma.compress(b"".join(whole)))
    assert checked(bundle).first == (f"{LOG} is not the log whose lengths and hashes {MANIFEST} records.",)


# Files that are not those of the submission


def test_files_are_compared_with_the_submission(bundle: Path) -> None:
    def problems(name: str, content: bytes | None) -> list[str]:
        path = bundle / name
        held = path.read_bytes() if path.exists() else None
        if content is None:
            path.unlink()
        else:
            path.write_bytes(content)
        found = check_files(bundle)
        assert list(checked(bundle).first) == found  # and nothing else is read
        if held is None:
            path.unlink()
        else:
            path.write_bytes(held)
        return found

    summary = (bundle / SUMMARY).read_bytes()
    assert problems(SUMMARY, None) == [f"{SUMMARY} is missing."]
    assert problems(SUMMARY, summary.replace(b"1", b"2", 1)) == [
        f"{SUMMARY} does not have the SHA-256 that {SUBMISSION} says."
    ]
    assert problems(SUMMARY, summary + b"\n")[0].startswith(f"{SUMMARY} has {len(summary) + 1:,} bytes; {SUBMISSION} ")
    assert problems("extra.sh", b"") == ["'extra.sh' is no file of a bundle."]
    assert problems(LOG, b"") == [f"'{LOG}' is no file of a bundle."]
    assert "is no bundle: expected a file" in problems(SUBMISSION, None)[0]
    assert "is not of schema seedbench.submission/1 at the top: Invalid JSON" in problems(SUBMISSION, b"[" * 9999)[0]
    assert "at most 1 MiB" in problems(SUBMISSION, b" " * (2 << 20))[0]
    assert check_files(bundle) == []


def test_links_are_no_files(bundle: Path) -> None:
    outside = bundle.parent / "outside"
    shutil.move(bundle / SUMMARY, outside)
    (bundle / SUMMARY).symlink_to(outside)
    assert check_files(bundle) == [f"{SUMMARY} is no regular file."]
    shutil.move(bundle / SUBMISSION, outside)
    (bundle / SUBMISSION).symlink_to(outside)
    assert "is no bundle" in check_files(bundle)[0]


def test_log_that_unpacks_to_more_than_it_says(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    claimed = json.loads((bundle / SUBMISSION).read_text())["log"]
    bomb = lzma.compress(b"\n" * (64 << 20))
    assert len(bomb) < 100_000
    rewrite(bundle, PACKED_LOG, bomb)
    data = json.loads((bundle / SUBMISSION).read_text())
    (bundle / SUBMISSION).write_text(json.dumps({**data, "log": claimed}))
    (found,) = check_files(bundle)
    assert f"unpacks to more than {claimed['bytes']:,} bytes" in found
    monkeypatch.setattr("seedbench.logs.LONGEST_LOG", 1 << 20)
    with pytest.raises(SeedBenchError, match="unpacks to more than 1,048,576 bytes"):
        sum(1 for _ in lines(bundle / LOG))
    rewrite(bundle, PACKED_LOG, lzma.compress(b" " * 5000))
    monkeypatch.setattr("seedbench.logs.LONGEST_LINE", 1000)
    with pytest.raises(SeedBenchError, match="line 1 is longer than"):
        list(read_episodes(bundle))


@pytest.mark.parametrize("damage", [lambda c: c[:-20], lambda c: b"junk", lambda c: c[:60] + b"\xff" * 20 + c[80:]])
def test_damaged_compression(bundle: Path, damage: Callable[[bytes], bytes]) -> None:
    (bundle / PACKED_LOG).write_bytes(damage((bundle / PACKED_LOG).read_bytes()))
    with pytest.raises(SeedBenchError, match=r"episodes\.jsonl\.xz' is damaged|line \d+ is damaged"):
        list(read_episodes(bundle))


@pytest.mark.parametrize("tail", [b"x", lzma.compress(b'{"more": 1}\n'), b"\0" * 4])
def test_nothing_follows_the_log(bundle: Path, tail: bytes) -> None:
    """Readers that take what follows would see another log than this one."""
    (bundle / PACKED_LOG).write_bytes((bundle / PACKED_LOG).read_bytes() + tail)
    with pytest.raises(SeedBenchError, match=r"xz' is damaged \(something follows its end\)"):
        seal(bundle / LOG)
    with pytest.raises(SeedBenchError, match="something follows its end"):
        list(read_episodes(bundle))


def test_what_a_submission_calls_otherwise_is_noted(honest: Path, tmp_path: Path) -> None:
    noted = checked(pack(honest / "run", tmp_path / "renamed", model="Org/Large", method="seed")).notes
    assert noted == (
        f"{SUBMISSION} calls the model 'Org/Large'; the run calls it 'babbler'.",
        f"{SUBMISSION} calls the method 'seed'; the run knows of no training.",
    )
    trained = shutil.copytree(honest / "run", tmp_path / "run")
    manifest = json.loads((trained / MANIFEST).read_text())
    manifest["policy"]["trained"] = {"model": "tiny", "method": "grpo"}
    (trained / MANIFEST).write_text(json.dumps(manifest))
    assert checked(pack(trained, tmp_path / "same", model="org/tiny")).notes == ()
    assert checked(pack(trained, tmp_path / "other", method="seed")).notes == (
        f"{SUBMISSION} calls the method 'seed'; the run is of 'grpo'.",
    )


# Archives from anybody


HOSTILE: dict[str, tuple[list[tuple[Any, bytes]], str]] = {
    "parent": ([member("../manifest.json")], "'../manifest.json': only episodes.jsonl.xz, manifest.json, "),
    "absolute": ([member("/etc/manifest.json")], "'/etc/manifest.json': only "),
    "folder": ([member("run/manifest.json")], "'run/manifest.json': only "),
    "directory": ([member("manifest.json", b"", tarfile.DIRTYPE)], "'manifest.json': it is no regular file"),
    "renamed": ([member("x", pax_headers={"path": "../../summary.json"})], "'../../summary.json': only "),
    "symlink": ([member("summary.json", b"", tarfile.SYMTYPE, linkname="/etc/passwd")], "it is no regular file"),
    "hard link": ([member("summary.json", b"", tarfile.LNKTYPE, linkname="/etc/passwd")], "it is no regular file"),
    "device": ([member("summary.json", b"", tarfile.CHRTYPE, devmajor=1, devminor=5)], "it is no regular file"),
    "fifo": ([member("summary.json", b"", tarfile.FIFOTYPE)], "it is no regular file"),
    "sparse": (
        [member("summary.json", pax_headers={"GNU.sparse.map": "0,1", "GNU.sparse.size": "9999999999"})],
        "'summary.json': it is no regular file",
    ),
    "duplicate": ([member("summary.json"), member("summary.json")], "'summary.json': it is there twice"),
    "extra": ([member("summary.json"), member("run.sh")], "'run.sh': only "),
    "oversized": ([member("summary.json", b" " * (17 << 20))], "it has 17,825,792 bytes, and may have 16,777,216"),
    "missing": ([member("summary.json")], "is no bundle: it has no manifest.json"),
    "sparse nonsense": ([member("summary.json", pax_headers={"GNU.sparse.map": "a,b"})], "is no whole archive of"),
    "bomb": ([member("summary.json", pax_headers={"comment": "x" * (4 << 20)})], "it unpacks to more than the files"),
    "long name": ([member("n" * (4 << 20))], "it unpacks to more than the files"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    members, sentence = HOSTILE[what]
    told = refused(archive(tmp_path / "bundle.tar.gz", members), opened, monkeypatch)
    assert sentence in told
    assert len(told) < 400


def test_archive_that_claims_a_huge_member(tmp_path: Path) -> None:
    info, _ = member("summary.json", size=1 << 50)
    content = info.tobuf(tarfile.GNU_FORMAT)
    (tmp_path / "bundle.tar.gz").write_bytes(gzip.compress(content))
    with pytest.raises(SeedBenchError, match="it has 1,125,899,906,842,624 bytes"), opened(tmp_path / "bundle.tar.gz"):
        pass


@pytest.mark.parametrize(
    "content", [b"", b"junk", gzip.compress(b"junk" * 1000, mtime=0), gzip.compress(b"", mtime=0)[:10]]
)
def test_what_is_no_archive(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "bundle.tar.gz").write_bytes(content)
    with pytest.raises(SeedBenchError, match=r"is no whole archive|is no bundle"), opened(tmp_path / "bundle.tar.gz"):
        pass
    with pytest.raises(UsageError, match="is neither a folder nor an archive"), opened(tmp_path / "bundle.zip"):
        pass


def test_archive_cut_short(honest: Path, tmp_path: Path) -> None:
    content = (honest / "bundle.tar.gz").read_bytes()
    (tmp_path / "bundle.tar.gz").write_bytes(content[: len(content) // 2])
    with pytest.raises(SeedBenchError, match="is no whole archive of a bundle"), opened(tmp_path / "bundle.tar.gz"):
        pass


def test_wrong_hash_in_an_archive(
    honest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = {name: (honest / "bundle" / name).read_bytes() for name in NAMES}
    parts[SUMMARY] = parts[SUMMARY].replace(b"1", b"2", 1)
    found = archive(tmp_path / "bundle.tar.gz", [member(name, content) for name, content in parts.items()])
    cli = command_line(monkeypatch, capsys)
    told = cli("verify", found, "--panel", honest / PANEL)
    assert told.code == 1
    assert told.out.splitlines() == [
        f"{found}: 1 differences (0 episodes, 0 turns)",
        f"  {SUMMARY} does not have the SHA-256 that {SUBMISSION} says.",
    ]
    assert cli("verify", honest / "bundle.tar.gz", "--panel", honest / PANEL).out.startswith(
        f"{honest / 'bundle.tar.gz'}: verified (12 episodes, "
    )
    assert "is neither a folder nor an archive" in said(cli("verify", tmp_path / "absent.tar.gz"), 2)


def test_a_line_of_a_megabyte_is_inert(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "\x1b[31m\u202e<script>" + "x" * (1 << 20)
    evaluate(job(tmp_path / "run", Script(Response(text=text)), panel=panel(1)), Progress())
    bundle = pack(tmp_path / "run", tmp_path / "bundle")
    assert max(len(line) for line in lines(bundle / LOG)) > 1 << 20
    assert checked(bundle, tasks=1).first == ()
    console = Console(file=io.StringIO(), width=80, color_system=None)
    console.print(EpisodeIndex(bundle / LOG).render(0, console, "1/3"))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert len(shown) < 300_000
    found = records(bundle)
    found[0]["turns"][0]["action"] = text
    rewrite_log(bundle, dumped(found))
    told = command_line(monkeypatch, capsys)("verify", bundle, "--panel", bundle.parent / PANEL)
    assert told.code == 1
    assert ": action: stored '\\x1b[31m\\u202e<script>xxx" in told.out
    assert max(map(len, told.out.splitlines())) < 800


# The published schema

VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 1.5, 1 << 32, (1 << 32) + 1, "", "x", "a\nb", "a\n", "\x1b", "x" * 201, "x" * 2001,
    "https://example.org", "https://example.org\n", "http://a b", "javascript:x", "a" * 64, "a" * 64 + "\n",
    [], {}, {"bytes": 1, "sha256": "b" * 64}, {"bytes": 1, "sha256": "B" * 64},
)  # fmt: skip
MUTATIONS: list[tuple[str, Any]] = [
    (path, value)
    for path in (
        "schema", "model", "method", "submitter", "note", "url", "files", "log", "more", "log.bytes", "log.sha256",
        "log.more", "files.manifest:json", "files.more", "files.summary:json.bytes",
    )
    for value in VALUES
]  # fmt: skip


def test_the_reader_and_the_published_schema_agree(bundle: Path) -> None:
    schema = json.loads((files("seedbench") / "schemas" / "submission.schema.json").read_text(encoding="utf-8"))
    validator = jsonschema.Draft202012Validator(schema)
    valid = json.loads((bundle / SUBMISSION).read_text())
    assert validator.is_valid(valid)
    seen = set()
    for path, value in MUTATIONS:
        data = json.loads(json.dumps(valid))
        *parents, last = (part.replace(":", ".") for part in path.split("."))
        place: Any = data
        for key in parents:
            place = place[key]
        place[last] = value
        (bundle / SUBMISSION).write_text(json.dumps(data))
        expected = validator.is_valid(data)
        seen.add(expected)
        assert read(bundle) == expected, f"{path} = {value!r}: the schema says {expected}"
    assert seen == {True, False}
    for key in valid:
        (bundle / SUBMISSION).write_text(json.dumps({name: part for name, part in valid.items() if name != key}))
        with pytest.raises(SeedBenchError, match=f"at {key}: Field required"):
            read_submission(bundle)


def read(bundle: Path) -> bool:
    try:
        read_submission(bundle)
    except SeedBenchError:
        return False
    return True


def test_unknown_members_are_told_in_one_line(tmp_path: Path) -> None:
    names: Mapping[str, str] = {"\x1b[31m\nred" * 30: "\\x1b[31m\\nred", "\u202eexe": "\\u202eexe"}
    for name, shown in names.items():
        found = archive(tmp_path / "bundle.tar.gz", [member(name)])
        with pytest.raises(SeedBenchError) as error, opened(found):
            pass
        assert shown in str(error.value)
        assert "\n" not in str(error.value)
