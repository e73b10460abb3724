"""python -m probes: ask nodes, or read recorded captures, with no server and no database.

    python -m probes run --nodes 'gpu-[001-064]' --suite capture
    python -m probes run --local
    python -m probes explain evidence/
    python -m probes list
    python -m probes runner
    python -m probes record gpu-007 ib.ports port-down

Exit status: 0 every probe of every node was answered, 1 some were not, 2 bad input. Of explain: 0 a cause is
named, 3 none is, 2 bad input or not one file could be read.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

from probes import catalog, explain, log_paths, nodeset, record, report, suites
from probes.core import Capture, Reading
from probes.intake import NoSuchPath
from probes.transport import NodeEnd, Settings, Target, local, replay, ssh, sshconfig, trust

BAD_INPUT = 2


class Refused(Exception):
    """The command cannot be carried out as given; the text says why and what to do."""


BAD = (Refused, nodeset.NodesetError, log_paths.LogPathError, replay.BundleError, record.RecordError, NoSuchPath,
    suites.Unknown)  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    options = _parser().parse_args(argv)
    try:
        return int(options.act(options))
    except BAD as error:
        print(f"probes: {error}", file=sys.stderr)
        return BAD_INPUT
    except KeyboardInterrupt:
        print("probes: stopped; commands that ran on nodes were ended", file=sys.stderr)
        return 130
    except BrokenPipeError:  # `| head`: say nothing, and let Python not complain at exit either
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m probes", description="Ask nodes, or read recorded captures.")
    acts = parser.add_subparsers(required=True, metavar="run | explain | list | runner | record")
    run = acts.add_parser("run", help="run a suite of probes on nodes, on this machine, or over recorded captures")
    where = run.add_mutually_exclusive_group(required=True)
    where.add_argument("--nodes", metavar="NODESET", help="folded nodeset, such as 'gpu-[001-064],login1'")
    where.add_argument("--hosts", metavar="FILE", type=Path, help="hostfile, INI inventory or /etc/hosts lines; or -")
    where.add_argument("--local", action="store_true", help="this machine, without SSH")
    where.add_argument("--replay", metavar="DIR", type=Path, help="captures saved before with --save")
    run.add_argument("--suite", default="capture", help="a suite or one probe (default: capture)")
    gone = "also read log files of the nodes, such as '/logs/run7/*.log': for ranks that are gone"
    run.add_argument("--log-paths", metavar="PATTERN", nargs="+", default=[], help=gone)
    run.add_argument("--json", action="store_true", help="one JSON object per line, in the order of arrival")
    run.add_argument("--save", metavar="DIR", type=Path, help="also save the captures into DIR")
    run.add_argument("--fanout", type=_positive, default=Settings().fanout, help="nodes asked at a time")
    run.add_argument("--time", metavar="SECONDS", type=_positive, default=int(Settings().run_s), help="end of the run")
    _ssh_options(run)
    run.set_defaults(act=_run)
    why = acts.add_parser("explain", help="say what is wrong from files: captures, logs, stacks, dumps, in any layout")
    why.add_argument("paths", nargs="+", type=Path, metavar="PATH", help="files, folders and archives of them")
    why.add_argument("--json", action="store_true", help="the verdict as JSON, see docs/explain.md")
    why.set_defaults(act=lambda options: explain.command(options.paths, options.json))
    listing = acts.add_parser("list", help="suites and probes")
    listing.add_argument("--markdown", action="store_true", help="as docs/probes.md")
    listing.set_defaults(act=lambda options: report.page() if options.markdown else report.listing())
    whole = acts.add_parser(
        "runner", help="a runner to install on nodes that let nobody send programs, see docs/nodes.md"
    )
    whole.set_defaults(act=lambda _: report.installed_runner())
    keep = acts.add_parser("record", help="record one probe of one node as a test case")
    keep.add_argument("node", help="a node, or 'local'")
    keep.add_argument("probe")
    keep.add_argument("case", help="name of the case, such as port-down")
    keep.add_argument("--into", type=Path, default=Path("tests/fixtures"), help="default: tests/fixtures")
    _ssh_options(keep)
    keep.set_defaults(act=_record)
    return parser


def _ssh_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-F", "--ssh-config", metavar="FILE", type=Path, help="instead of ~/.ssh/config")
    parser.add_argument("--known-hosts", metavar="FILE", type=Path, help="instead of the usual known_hosts files")
    parser.add_argument("--user", default="")
    parser.add_argument("--port", type=_port, default=0)
    parser.add_argument("--jump", default="", metavar="[USER@]HOST[:PORT]")


def _positive(text: str) -> int:
    if not text.isdigit() or not 0 < int(text) < 1_000_000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def _port(text: str) -> int:
    try:
        return nodeset.checked_port(text)
    except nodeset.NodesetError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _settings(options: argparse.Namespace) -> Settings:
    settings = Settings()
    if options.ssh_config:
        if not options.ssh_config.is_file():
            raise Refused(f"{options.ssh_config}: no such SSH configuration file")
        settings.config = [str(options.ssh_config)]
    if options.known_hosts:
        if not options.known_hosts.is_file():
            raise Refused(f"{options.known_hosts}: no such known_hosts file")
        settings.known_hosts = (str(options.known_hosts),)
    for ignored in sshconfig.ignored_options(settings.config):
        print(f"probes: {ignored}", file=sys.stderr)
    for problem in trust.TrustedKeys(settings.known_hosts or (*trust.USER_FILES, *trust.GLOBAL_FILES)).problems:
        print(f"probes: {problem}", file=sys.stderr)
    return settings


def _targets(options: argparse.Namespace) -> list[Target]:
    if options.nodes is not None:
        targets = nodeset.parse_hosts(options.nodes.replace("\n", " "))
    else:
        try:
            text = sys.stdin.read() if str(options.hosts) == "-" else options.hosts.read_text(errors="replace")
            targets = nodeset.parse_hosts(text)
        except OSError as error:
            raise Refused(f"{options.hosts}: {error.strerror}") from error
        except nodeset.NodesetError as error:
            raise Refused(f"{options.hosts}: {error}") from error
    return [_with_defaults(target, options) for target in targets]


def _with_defaults(target: Target, options: argparse.Namespace) -> Target:
    return replace(target, user=target.user or options.user, port=target.port or options.port, jump=options.jump)


def _run(options: argparse.Namespace) -> int:
    suite = suites.suite_or_probe(options.suite)
    paths = _log_paths(options, suite)
    if options.save:
        replay.check_free(options.save)
    if options.replay:
        return _replay(options, suite)
    plan = suite.plan(paths)
    if options.local:
        return asyncio.run(_show(local.ask(plan), [local.NAME], options))
    settings = _settings(options)
    settings.fanout, settings.run_s = options.fanout, float(options.time)
    settings.node_s = plan.deadline_s + settings.connect_s + 5
    targets = _targets(options)
    return asyncio.run(_show(ssh.ask(targets, plan, settings), [target.node for target in targets], options))


def _log_paths(options: argparse.Namespace, suite: suites.Suite) -> tuple[str, ...]:
    found = log_paths.checked(options.log_paths)
    if found and "rank.log" not in suite.probes:
        raise Refused(f"--log-paths is for suites with rank.log, such as capture; {suite.name} reads no logs")
    if found and options.replay:
        raise Refused("--log-paths asks nodes; captures that were saved hold what they hold")
    return found


async def _show(stream: AsyncIterator[Capture | NodeEnd], nodes: list[str], options: argparse.Namespace) -> int:
    """Read, show and perhaps save what arrives, as it arrives."""
    screen = report.Screen(nodes, options.json)
    captures: list[Capture] = []
    with screen:
        async for item in stream:
            if isinstance(item, NodeEnd):
                screen.node(item)
            else:
                screen.reading(catalog.read(item))
                if options.save:
                    captures.append(item)
    if options.save:
        _save(options.save, captures)
    return screen.close()


def _save(folder: Path, captures: list[Capture]) -> None:
    try:
        count = replay.save(folder, captures)
    except OSError as error:
        raise Refused(f"{error.filename}: {error.strerror}: the captures were not saved") from error
    print(f"{report.count(count, 'capture')} saved in {folder}", file=sys.stderr)


def _replay(options: argparse.Namespace, suite: suites.Suite) -> int:
    readings: list[Reading] = []
    wanted = None if options.suite == "capture" else set(suite.probes)
    for capture in replay.captures(options.replay):
        if capture.probe in catalog.load() and (wanted is None or capture.probe in wanted):
            readings.append(catalog.read(capture))
    nodes = list(dict.fromkeys(reading.capture.node for reading in readings))
    screen = report.Screen(nodes, options.json)
    with screen:
        for node in nodes:
            for reading in readings:
                if reading.capture.node == node:
                    screen.reading(reading)
            screen.node(NodeEnd(node))
    return screen.close()


def _record(options: argparse.Namespace) -> int:
    if options.probe not in catalog.load():
        raise Refused(f"no probe is called {options.probe}. There are: {', '.join(catalog.load())}")
    plan = suites.suite_or_probe(options.probe).plan()
    if options.node == "local":
        stream = local.ask(plan)
    else:
        names = nodeset.parse_hosts(options.node)
        stream = ssh.ask([_with_defaults(name, options) for name in names[:1]], plan, _settings(options))
    capture = asyncio.run(_first(stream))
    out, draft = record.write(options.into, options.case, capture)
    print(f"Recorded {out}\nNow check every value in {draft} against the tool's manual: a draft proves nothing.")
    print(json.dumps(json.loads(draft.read_text()), indent=2)[:2000])
    return 0


async def _first(stream: AsyncIterator[Capture | NodeEnd]) -> Capture:
    captures = [item async for item in stream if isinstance(item, Capture)]
    return captures[0]


if __name__ == "__main__":
    sys.exit(main())
