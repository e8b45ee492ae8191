"""Tests of scripts/performance_doc."""

import importlib.machinery
import importlib.util
import json
import subprocess
import tempfile
import unittest
from pathlib import Path

PROGRAM = Path(__file__).resolve().parent.parent / "scripts/performance_doc"
LOADER = importlib.machinery.SourceFileLoader("performance_doc", str(PROGRAM))
DOC = importlib.util.module_from_spec(importlib.util.spec_from_loader(LOADER.name, LOADER))
LOADER.exec_module(DOC)


def row(row_class, m, us, peers, **changes):
    return {"class": row_class, "m": m, "n": 64, "k": 32, "us": us, "peers": peers, "threads": 1,
            "shapes": "llama3_8b_decode", "bytes": 1e6, "streamed": False, "noisy": False,
            "family": "cpu_blocked", "config": "plain", "spread": {"p10": us, "p90": us, "runs": 1},
            **changes}


def report(*rows):
    return {"machine": {"cpu": "A CPU", "cores": 1, "isa": "avx2", "l2_bytes": 1, "l3_bytes": 1},
            "date": "2026-12-01T00:00:00Z", "versions": {"deepgemm": "0.1.0"}, "rows": list(rows),
            "ceilings": [{"threads": 1, "read_gbs": 10, "fp32_gflops": 100, "noisy": False}]}


def target(title, *rows):
    made = report(*rows)
    ceilings = {each["threads"]: each for each in made["ceilings"]}
    return next(cells for cells in DOC.target_rows(made, ceilings) if cells[0].startswith(title))


class Targets(unittest.TestCase):
    def test_mean_is_geometric_and_takes_the_better_peer(self):
        cells = target("FP32, M >= 16", row("fp32", 16, 10, {"onednn": 40, "openblas": 80}),
                       row("fp32", 128, 10, {"onednn": 20, "openblas": 10}))
        self.assertEqual(cells[2:], ["2 of 2", "1.00", "2.00", "1.00", "yes"])

    def test_slower_than_wanted_is_not_met(self):
        self.assertEqual(target("BF16, M >= 16", row("bf16", 16, 10, {"onednn": 11}))[-1], "**no**")

    def test_other_rows_do_not_count(self):
        cells = target("BF16, M = 1", row("bf16", 16, 10, {"onednn": 100}),
                       row("fp32", 1, 10, {"onednn": 100}),
                       row("bf16", 1, 10, {"onednn": 100}, threads=2))
        self.assertEqual(cells[2:], ["0 of 0", "1.00", "-", "-", "not measured"])

    def test_noisy_rows_count_in_no_mean(self):
        cells = target("INT8", row("int8", 1, 10, {"onednn": 100}, noisy=True),
                       row("int8", 1, 10, {"onednn": 5}))
        self.assertEqual(cells[2:], ["1 of 2", "1.00", "0.50", "0.50", "**no**"])

    def test_share_of_reading_is_of_streamed_rows(self):
        cells = target("INT4, M = 1 ... 4, share", row("w4", 1, 125, {}, streamed=True),
                       row("w4", 1, 1, {}))
        self.assertEqual(cells[4], "0.80")


class Program(unittest.TestCase):
    def test_check_refuses_a_page_that_was_edited(self):
        with tempfile.TemporaryDirectory() as folder:
            results, page = Path(folder, "results"), Path(folder, "page.md")
            (results / "cpu").mkdir(parents=True)
            made = report(row("fp32", 1, 10, {"openblas": 20}))
            (results / "cpu" / "a.json").write_text(json.dumps(made), encoding="utf-8")
            command = [PROGRAM, "--results", results, "--output", page]
            subprocess.run(command, check=True)
            self.assertIn("A CPU", page.read_text(encoding="utf-8"))
            self.assertEqual(subprocess.run([*command, "--check"], check=False).returncode, 0)
            page.write_text(page.read_text(encoding="utf-8") + "faster\n", encoding="utf-8")
            refused = subprocess.run([*command, "--check"], check=False, capture_output=True)
            self.assertEqual(refused.returncode, 1)


if __name__ == "__main__":
    unittest.main()
