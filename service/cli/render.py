"""Results as tables and lines with units.

Functions take the JSON documents that `--json` prints, so that a local run and a run on a service
have the same output. `tilewright.service.units` scales the values.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tilewright.peers.library_versions import described
from tilewright.service.answers.failed_checks import rejection_reasons
from tilewright.service.cli.facts import (
    Document,
    Rows,
    evidence_rows,
    grade_text,
    packing_rows,
    rewritten_rows,
    threads_text,
    workload_title,
)
from tilewright.service.units import byte_size, clock, duration, percent, quantity, speed

PRIOR_DOUBTED = 0.05
PRIOR_BEATEN = 1.1
"""A report states that the prior was wrong if `prior_trust` is below `PRIOR_DOUBTED` and
`gain_over_prior` is at least `PRIOR_BEATEN`. The trust alone does not suffice: it also decreases if
a nearly optimal choice of the prior leads to many equally fast candidates."""


def facts(rows: Rows) -> Text:
    """Render lines of a name and a value, with aligned values."""
    width = max((len(name) for name, _ in rows), default=0)
    text = Text(overflow="fold")
    for number, (name, value) in enumerate(rows):
        text.append(f"{name:<{width}}  ", style="dim")
        text.append(value + ("\n" if number < len(rows) - 1 else ""))
    return text


def grid(header: Sequence[str], rows: Sequence[Sequence[str]], *, words: int = 1) -> Table:
    """Render a table. The first `words` columns are left-aligned; the others are right-aligned
    numbers."""
    from rich import box

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for index, name in enumerate(header):
        table.add_column(name, justify="left" if index < words else "right", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table


def database_stats(document: Document) -> RenderableType:
    """Render the result of `db stats`. Empty kinds and owners are omitted."""
    tables = [
        [name, str(one["rows"]), byte_size(one["bytes"]), (one["oldest"] or "")[:19]]
        for name, one in document["tables"].items()
        if one["rows"]
    ]
    owners = [
        [name or "(no key)", *(str(one[n]) for n in ("jobs", "open_jobs", "preparations")),
         byte_size(one["prepared_bytes"]), str(one["keys"])]
        for name, one in document["owners"].items()
    ]  # fmt: skip
    kinds = [("database", str(document["database"])),
             ("in use", byte_size(document["used_bytes"])),
             ("on disk", byte_size(document["disk_bytes"]))]  # fmt: skip
    blobs = ", ".join(
        f"{one['count']} {kind} ({byte_size(one['bytes'])})"
        for kind, one in document["blobs"].items()
    )
    kinds += [
        (name, ", ".join(f"{n} {kind}" for kind, n in document[name].items()) or "none")
        for name in ("records", "jobs", "preparations")
    ]
    parts: list[RenderableType] = [facts([*kinds, ("files", blobs or "none")])]
    parts.append(grid(["table", "rows", "content", "oldest"], tables))
    if owners:
        header = ["owner", "jobs", "open", "preparations", "prepared files", "keys"]
        parts.append(grid(header, owners))
    return Group(*parts)


def failures_text(by_status: Document) -> str:
    """Format as `2 wrong_result, 1 run_timeout`, most frequent first, or "" if no candidate
    failed."""
    failed = sorted(((n, s) for s, n in by_status.items() if s != "ok" and n), reverse=True)
    return ", ".join(f"{n} {status}" for n, status in failed)


def tune_summary(report: Document, *, again: str | None, mocked: bool = False) -> RenderableType:
    """Render the result of a tuning run. `again` is the workload as the user entered it, for
    `tilewright show`; None if it is stored in another database than the command's. With `mocked`,
    no kernel was built or run."""
    workload, target, best = report["workload"], report["target"], report["best"]
    flops = float(workload["flops"])
    trials = report["trials"]
    ran = f"{trials['total']} ({trials['ok']} ok"
    failed = failures_text(trials["by_status"])
    ran += f"; {failed}" if failed else ""
    reused = trials["total"] - trials.get("measured_now", trials["total"])
    ran += f"; {reused} reused)" if reused else ")"
    rows = [
        ("workload", f"{workload_title(workload)}  ({quantity(flops)} flop)"),
        ("target", f"{target['cpu']}, {threads_text(target['threads'])}"),
    ]
    if best is not None:
        rows.append(("best", f"{duration(best['run_secs'])}, {speed(flops, best['run_secs'])}"))
        rows += packing_rows(best)
        rows.append(
            (
                "fraction of bound",
                f"{percent(best['fraction_of_bound'])} ({best['bound']}-bound)",
            )
        )
        if best.get("rewritten"):
            rows += rewritten_rows(best["rewritten"])
        default = report["default"]
        if default and default.get("run_secs"):
            gain = float(default["run_secs"]) / float(best["run_secs"])
            rows.append(("speedup over default", f"{gain:.2f}x"))
        verified = "yes, rebuilt in a fresh process" if best["verified"] else "no"
        rows.append(("verified", "no: timings are mocked, not measured" if mocked else verified))
        rows += evidence_rows(best)
    elif str(report["stopped_because"]).startswith("stopped on request"):
        rows.append(("best", "none is checked yet; the same command continues and checks it"))
    else:
        rows.append(("best", "none: no candidate passed"))
    rows += [
        ("trials", ran),
        *_rejected_rows(report),
        ("space", f"{quantity(report['space_size'])} schedules"),
        ("wall time", f"{duration(report['wall_secs'])} ({_phases(report)})"),
        ("stopped", str(report["stopped_because"])),
        *_prior_rows(report.get("cost_model", {})),
        *database_model_rows(report.get("database_model") or {}),  # absent in older reports
        *related_rows(report.get("related") or ()),
    ]
    rows += [
        ("not searched", f"sketch {sketch['name']}: {sketch['reason']}")
        for sketch in report.get("dropped_sketches", ())  # absent in reports of older versions
    ]
    learned = (report.get("bound") or {}).get("notes", ())  # absent in reports of older versions
    rows += [("bound", note) for note in learned]
    parts: list[RenderableType] = [facts(rows)]
    if best is not None:
        parts.append(
            Text(
                "\nstored by the service"
                if again is None
                else f"\nstored; see it with: tilewright show {again}",
                style="dim",
                no_wrap=True,
                overflow="ignore",
            )
        )
    return Group(*parts)


def many_summary(document: Document, *, mocked: bool = False) -> RenderableType:
    """Render the results of a run over many workloads: a row per task, and the whole."""
    total = float(document["weighted_secs"])
    table = [_task_row(task, total) for task in document["tasks"]]
    with_best = sum(task["best"] is not None for task in document["tasks"])
    trials = sum(int(task["trials"]["total"]) for task in document["tasks"])
    rows = [
        ("tasks", f"{len(table)}, {with_best} with a best"),
        ("total", f"{duration(total)} (weight times best time, over the tasks with a best)"),
        ("trials", str(trials)),
        ("wall time", duration(document["wall_secs"])),
        ("stopped", str(document["stopped_because"])),
    ]
    if mocked:
        rows.append(("verified", "no: timings are mocked, not measured"))
    header = ["task", "weight", "best", "speed", "of the bound", "share", "over default", "trials"]
    return Group(grid(header, table), facts(rows))


def _task_row(task: Document, total: float) -> list[str]:
    best, default = task["best"], task.get("default")
    row = [str(task["name"]), f"{task['weight']:g}"]
    trials = str(task["trials"]["total"])
    if best is None:
        return [*row, "none", "", "", "", "", trials]
    gain = default["run_secs"] / best["run_secs"] if default and default.get("run_secs") else None
    return [
        *row,
        duration(best["run_secs"]),
        speed(float(task["workload"]["flops"]), best["run_secs"]),
        percent(best["fraction_of_bound"]),
        percent(task["weighted_secs"] / total),
        "-" if gain is None else f"{gain:.2f}x",
        trials,
    ]


def _rejected_rows(report: Document) -> list[tuple[str, str]]:
    """Render a line for each candidate that failed the full check."""
    rejected = report.get("rejected") or ()  # absent in reports of older versions
    pairs = zip(rejected, rejection_reasons(report), strict=True)
    return [("rejected", f"trial {one['trial']}: {detail}") for one, detail in pairs]


def training_rows(document: Document) -> list[tuple[str, str]]:
    """Render a model per target: what it was trained on, its held-out error and its share."""
    rows = [("database", str(document["database"]))]
    for model in document["models"]:
        timings = f", timings of {model['timings']}" if model["timings"] else ""
        rows.append(("target", f"{model['target_key'][:12]}{timings}"))
        rows += _model_rows(model["quality"]) or [("not trained", str(model["note"]))]
        if model["key"]:
            rows.append(("stored as", f"{model['key']} in {duration(model['train_secs'])}"))
    return rows if document["models"] else [*rows, ("not trained", "no new trials to learn from")]


def _model_rows(quality: Document) -> list[tuple[str, str]]:
    if not quality:
        return []
    share = quality["share"]
    used = f"{percent(share)} of its correction is used" if share else "it is not used"
    weights = quality.get("weights") or {}  # absent in older models
    lent = [
        (name, f"{percent(weight)} of the weight of own trials") for name, weight in weights.items()
    ]
    if not quality.get("is_tested", True):
        lent.append(("not tested", "the target itself has too few trials"))
    return [
        (
            "trained on",
            f"{quality['samples']} trials of {quality['groups']} workloads"
            f" of {quality['families']} structures",
        ),
        (
            "held-out error",
            f"{quality['model_error']:.2f} (prior: {quality['prior_error']:.2f}) in log2 of times;"
            f" rank correlation with the prior's error {quality['correlation']:.2f}",
        ),
        (
            "held-out choice",
            f"{2 ** quality['model_cost']:.2f}x the fastest"
            f" (prior: {2 ** quality['prior_cost']:.2f}x); {used}",
        ),
        *lent,
    ]


def database_model_rows(model: Document) -> list[tuple[str, str]]:
    """Render the part of the database's model in a run: a line, or none without a model."""
    if not model:
        return []
    if model["note"]:
        return [("model", f"not used: {model['note']}")]
    quality = model["quality"]
    learned = f"{quality.get('samples')} trials of {quality.get('groups')} workloads"
    if model.get("origin"):  # absent in older reports
        learned += f" on {model['origin']}"
    if not model["share"]:
        return [("model", f"trained on {learned}; it does not help on others, so it is not used")]
    return [("model", f"corrects the prior by {percent(model['share'])} of what {learned} taught")]


def related_rows(related: Sequence[Document]) -> list[tuple[str, str]]:
    """Render which tasks lent trials to a run, and how settings that were fast elsewhere did."""
    if not related:
        return []
    first, others = related[0], len(related) - 1
    more = f" and {others} other related task{'s' * (others > 1)}" if others else ""
    rows = [("related", f"the search used trials of {_task_name(first)}{more}")]
    for task in related:
        for tried in task["tried"]:
            secs, status = tried["run_secs"], tried["status"]
            found = status if secs is None else duration(secs)
            where = task["origin"] or "spelling"
            rows.append((where, f"a fast setting there was trial {tried['trial']}: {found}"))
    return rows


def _task_name(task: Document) -> str:
    name = "this workload" if task["is_same_workload"] else task["workload"] or "another workload"
    if task.get("is_spelling"):  # absent in older reports
        return f"{name}, another spelling of this computation"
    return f"{name} on {task['origin']}" if task["origin"] else str(name)


def _prior_rows(cost_model: Document) -> list[tuple[str, str]]:
    """Render a note if the search stopped using the prior because of its measurements."""
    trust, gain = cost_model.get("prior_trust"), cost_model.get("gain_over_prior")
    if trust is None or trust >= PRIOR_DOUBTED or gain is None or gain < PRIOR_BEATEN:
        return []
    return [("prior", "wrong for this machine; the search used its measurements instead")]


def _phases(report: Document) -> str:
    phases = sorted(report["wall_secs_by_phase"].items(), key=lambda item: -float(item[1]))
    return ", ".join(f"{name} {duration(secs)}" for name, secs in phases if secs)


def trial_line(event: Document, flops: float) -> str:
    """Render one trial, for logs and pipes."""
    result = event["result"]
    what = speed(flops, result["run_secs_estimate"]) if result["status"] == "ok" else (
        result["status"] + (f": {result['detail']}" if result.get("detail") else "")
    )  # fmt: skip
    mark = "  <- best" if event["is_best"] else ""
    return (
        f"trial {event['trial']}/{event['of_trials']}  {what}{mark}"
        f"  (best {best_text(event, flops)}, ETA {clock(event['eta_secs'])})"
    )


def best_text(event: Document, flops: float) -> str:
    """Format as `258 GFLOP/s, 98% of the bound`, or `none yet`."""
    if event["best_run_secs"] is None:
        return "none yet"
    fraction = event["fraction_of_bound"]
    of_bound = f", {percent(fraction)} of the bound" if fraction is not None else ""
    return speed(flops, event["best_run_secs"]) + of_bound


def bench_table(document: Document, flops: float) -> RenderableType:
    """Render the times of the kernel and its peers, with the interval of each speed-up."""
    rows = [["tilewright", duration(document["kernel"]["run_secs"]),
             speed(flops, document["kernel"]["run_secs"]), "", ""]]  # fmt: skip
    packing = document["kernel"].get("run_secs_with_packing")
    if packing is not None:
        rows.append(["packing in the call", duration(packing), speed(flops, packing), "", ""])
    misaligned = document["kernel"].get("run_secs_misaligned")
    if misaligned is not None:
        name = f"arrays {document['kernel']['bytes_behind_line']} bytes after a line"
        slower = f"{misaligned / document['kernel']['run_secs']:.2f}x"
        rows.append([name, duration(misaligned), speed(flops, misaligned), slower, ""])
    for name, peer in document["against"].items():
        if peer.get("run_secs") is None:
            rows.append([name, "-", str(peer.get("detail", "")), "", ""])
            continue
        interval = (
            f"{peer['speedup']:.2f}x ({peer['speedup_low']:.2f} to {peer['speedup_high']:.2f})"
        )
        time, rate = duration(peer["run_secs"]), speed(flops, peer["run_secs"])
        rows.append([name, time, rate, interval, str(peer.get("way", ""))])
        dispatch = peer.get("dispatch_secs")
        if dispatch is not None:
            rows.append(["  of it dispatch", duration(dispatch), "", "", ""])
    head = ["", "time per call", "speed", "tilewright is faster by", "called as"]
    table = grid(head, rows)
    notes = [described(peer["libraries"]) for peer in document["against"].values()
             if peer.get("libraries")]  # fmt: skip
    return Group(table, Text("\n".join(notes), style="dim")) if notes else table


def job_facts(job: Document) -> RenderableType:
    progress = job.get("progress") or {}
    workload = job["workload"]
    flops = float(workload.get("flops") or 0)
    rows = [
        ("job", str(job["id"])),
        ("state", str(job["state"])),
        ("workload", workload_title(workload)),
        ("trials", f"{progress.get('trials_done', 0)} of {progress.get('trials', '?')}"),
    ]
    best = job.get("best")
    if best:
        rows.append(("best", f"{duration(best['run_secs'])}, {speed(flops, best['run_secs'])}"))
    elif progress.get("best_run_secs"):
        rows.append(("best so far", speed(flops, float(progress["best_run_secs"]))))
    if not job["done"] and progress.get("doing"):
        rows.append(("doing", str(progress["doing"])))
    if not job["done"] and progress.get("eta_secs") is not None:
        rows.append(("ETA", clock(float(progress["eta_secs"]))))
    sharing = job.get("sharing") or {}
    if sharing.get("owners", 0) > 1 or sharing.get("withdrawn"):
        names = f": {', '.join(sharing['names'])}" if sharing.get("names") else ""
        you = "; you withdrew" if sharing.get("withdrawn") else ""
        count = sharing["owners"]
        owners = "1 owner" if count == 1 else f"{count} owners"
        rows.append(("wanted by", f"{owners}{names}{you}"))
    if job.get("elapsed_secs") is not None:
        waited = float(job.get("queued_secs") or 0.0)
        rows.append(("took", f"{clock(job['elapsed_secs'])}, {clock(waited)} of it in the queue"))
    if job.get("error"):
        rows.append(("error", str(job["error"].get("detail") or job["error"])))
    return facts(rows)


def jobs_table(jobs: Sequence[Document]) -> RenderableType:
    rows = []
    for job in jobs:
        progress = job.get("progress") or {}
        best = job.get("best") or {}
        run_secs = best.get("run_secs") or progress.get("best_run_secs")
        flops = float(job["workload"].get("flops") or 0)
        rows.append(
            [
                str(job["id"]),
                str(job["state"]),
                workload_title(job["workload"]),
                f"{progress.get('trials_done', 0)}/{progress.get('trials', '?')}",
                speed(flops, run_secs) if run_secs else "-",
            ]
        )
    return grid(["job", "state", "workload", "trials", "best"], rows, words=3)


def verified_facts(document: Document) -> RenderableType:
    rows = [
        ("verified", "yes, rebuilt in a fresh process"),
        ("record", str(document["record_key"])),
        ("took", duration(document["verify_secs"])),
        *evidence_rows(document),
    ]
    if document["renewed_as"]:
        rows.append(("now", f"{document['renewed_as']}, measured here"))
    return facts(rows)


def emitted_facts(document: Document) -> RenderableType:
    """Render the files `emit` wrote."""
    files = [
        (f["path"], f"{byte_size(f['bytes'])}  sha256 {f['sha256'][:16]}...")
        for f in document["files"]
    ]
    if "variants" not in document:
        return facts([("grade", grade_text(document)), *files])
    variants = [
        (v["cpu"], f"grade {v['grade']}, " + (v["record_key"] or "chosen without measurement"))
        for v in document["variants"]
    ]
    return facts([*variants, *files])


def upgraded_table(document: Document) -> RenderableType:
    """Render the tasks that became slower with a newer toolchain."""
    if not document["slower"]:
        return Text("nothing became slower by more than 5 % with a newer toolchain")
    rows = [
        [one["workload"], f"{one['cpu']}, {threads_text(one['threads'])}",
         _toolchain_text(one["before"]), _toolchain_text(one["after"]),
         duration(one["before"]["run_secs"]), duration(one["after"]["run_secs"]),
         f"{one['slower_by']:.2f}x", duration(one["best_run_secs"])]
        for one in document["slower"]
    ]  # fmt: skip
    head = ["workload", "target", "before", "after", "was", "is", "slower by", "best now"]
    return grid(head, rows, words=4)


def _toolchain_text(measured: Document) -> str:
    made_by = measured["toolchain"]
    return f"code generator {made_by['codegen_version']}, LLVM {made_by['llvm']}"


def findings_table(findings: Sequence[Document]) -> RenderableType:
    """Render the findings of `doctor`, coloured by severity."""
    from rich import box

    colours = {"ok": "green", "warn": "yellow", "fail": "bold red"}
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("check", no_wrap=True)
    table.add_column("")
    table.add_column("found", overflow="fold")
    for finding in findings:
        text = Text(str(finding["detail"]))
        if finding["advice"]:
            text.append(f"\n{finding['advice']}", style="dim")
        status = str(finding["status"])
        table.add_row(str(finding["name"]), Text(status, style=colours[status]), text)
    return table


def fleet_table(machines: Sequence[Document]) -> RenderableType:
    """Render the machines of a fleet, sorted by target."""
    from rich import box

    if not machines:
        return Text("no machine has joined: tilewright worker --join ADDRESS")
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("machine", "cpu", "target"):
        table.add_column(name, no_wrap=True)
    for name in ("cores", "peak GFLOP/s", "memory GB/s", "measured"):
        table.add_column(name, justify="right")
    table.add_column("now")
    for machine in sorted(machines, key=lambda m: (m["target"]["key"], m["name"])):
        target = machine["target"]
        peaks, bandwidths = target["probes"]["peak_gflops"], target["probes"]["bandwidth_gbs"]
        table.add_row(
            str(machine["name"]),
            str(target["cpu"]),
            str(target["key"])[:12],
            str(target["cores"]),
            _first(peaks.get("f32")),
            _first(bandwidths.get("memory")),
            str(machine["measured"]),
            "measures" if machine["busy"] else "waits",
        )
    return table


def _first(figures: Sequence[float] | None) -> str:
    return f"{figures[0]:.4g}" if figures else ""


def operators_table(operators: Sequence[Document]) -> RenderableType:
    from rich import box

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("operator", no_wrap=True)
    table.add_column("parameters", overflow="fold")
    table.add_column("layout", overflow="fold")
    for operator in operators:
        parameters = ", ".join(
            str(p["name"]) if p["default"] is None else f"{p['name']}={p['default']}"
            for p in operator["parameters"]
        )
        table.add_row(
            Text(str(operator["name"])), Text(parameters), Text(str(operator.get("layout", "")))
        )
    return table


def target_facts(target: Document) -> RenderableType:
    """Render a hardware description with its probes, one column per thread count."""
    caches = ", ".join(
        f"{byte_size(c['bytes'])}{' shared' if c['shared'] else ''}" for c in target["caches"]
    )
    rows = [
        ("cpu", f"{target['cpu']}  ({target['triple']})"),
        ("vectors", f"{target['vector_registers']} registers of {target['vector_bits']} bits"),
        ("caches", caches),
        ("cores", f"{target['cores']}; kernels for {threads_text(target['threads'])}"),
        ("features", f"{len(target['features'])} enabled"),
        ("key", str(target["key"])),
    ]
    probes = target["probes"]
    measured = [
        (f"peak {dtype}", values, "GFLOP/s") for dtype, values in probes["peak_gflops"].items()
    ] + [(f"read {level}", values, "GB/s") for level, values in probes["bandwidth_gbs"].items()]
    if not measured:
        rows.append(("probes", "not measured"))
        return facts(rows)
    columns = max(len(values) for _, values, _ in measured)
    header = ["probe", *(f"{n} thread{'s' if n > 1 else ''}" for n in range(1, columns + 1)), ""]
    lines = [
        [name, *(f"{v:.4g}" for v in values), *[""] * (columns - len(values)), unit]
        for name, values, unit in measured
    ]
    region = duration(probes["parallel_region_secs"])
    rows.append(("parallel region", region))
    if probes.get("clock_ghz"):
        rows.append(("clock", f"{probes['clock_ghz']:.3g} GHz"))
    if probes.get("doubtful"):
        rows.append(("doubtful", "probed under other load; not used for early stopping"))
    return Group(facts(rows), grid(header, lines))
