// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo x VERB`: the house's own tasks, one file per verb.
//!
//! It needs few crates, so that it builds in seconds on a bare machine, and CI needs nothing but
//! rustup.

mod bench;
mod book;
mod ci;
mod files;
mod fuzz;
mod gallery;
mod house;
mod markdown;
mod no_std;
mod package;
mod picture;
mod proof;
mod prose;
mod run;
mod soak;
mod test;
mod tidy;
mod vm;

use std::process::ExitCode;

/// A verb: its name, what `--help` says of it, what it does with the arguments after it.
struct Verb {
    name: &'static str,
    summary: &'static str,
    run: fn(&[String]) -> Result<(), run::Failed>,
}

const VERBS: &[Verb] = &[
    Verb {
        name: "bench",
        summary: "[PART...]: speed (in-process, nbd), threads, huge-pages, vhost-user-blk, engine, memory, volumes, predicted, recovery; --dir DIR, --json, --keep (in bench/runs)",
        run: bench::bench,
    },
    Verb {
        name: "ci",
        summary: "everything CI runs once the tools are installed; --quick: what to run between two edits; --list",
        run: ci::ci,
    },
    Verb { name: "test", summary: "unit, property and conformance tests; not end to end", run: test::test },
    Verb { name: "e2e", summary: "end-to-end tests of the release binary; arguments are libtest's", run: test::e2e },
    Verb { name: "book", summary: "builds the book of docs/ with mdBook, in target/book", run: book::book },
    Verb { name: "reference", summary: "writes docs/reference/cli.md and config.md anew", run: book::reference },
    Verb {
        name: "sweep",
        summary: "a power cut at every event of every workload; --objects: of volumes in stores; --point P: one again",
        run: proof::sweep,
    },
    Verb {
        name: "torture",
        summary: "random lives: --seconds N, --seed S [--with CHANGES]; --canaries: planted bugs",
        run: proof::torture,
    },
    Verb {
        name: "golden",
        summary: "a hash of all effects for each of 200 random lives and each workload: compare it before and after a refactoring",
        run: proof::golden,
    },
    Verb {
        name: "fuzz",
        summary: "hostile bytes: --seconds N (20), --unguided, for each TARGET (all); TARGET INPUT...: again",
        run: fuzz::fuzz,
    },
    Verb {
        name: "gallery",
        summary: "screenshots of the dashboard under a load: --dir DIR (target/gallery), --seconds N (60)",
        run: gallery::gallery,
    },
    Verb {
        name: "soak",
        summary: "--hours N: the crash sweep, then rounds of torture, repair and guided fuzzing with fresh seeds",
        run: soak::soak,
    },
    Verb {
        name: "prose",
        summary: "words per sentence of each document: [--check] [--long] [PATH...]",
        run: prose::prose,
    },
    Verb {
        name: "package",
        summary: "the Debian package, whose path it prints; --check: looks at it; --test [SUITE...]: lives with it in clean roots",
        run: package::package,
    },
    Verb {
        name: "tidy",
        summary: "the rules of the house that no compiler checks; --lower: what is no longer owed (debts.txt, ceilings.txt)",
        run: tidy::tidy,
    },
    Verb {
        name: "house",
        summary: "[CRATE...]: files, lines, the largest import circle, the most spread type of each crate; CRATE (crates/engine): what they come from",
        run: house::house,
    },
    Verb { name: "no-std", summary: "proves that the engine pulls in no std", run: no_std::no_std },
    Verb { name: "picture", summary: "draws the README's picture from data in bench/runs", run: picture::picture },
    Verb {
        name: "vm",
        summary: "power cuts under SQLite on ext4 in QEMU: --kills N, --seed S, --keep, --canary; also compare, reconnect, ublk",
        run: vm::vm,
    },
];

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let name = args.next().unwrap_or_default();
    let rest: Vec<String> = args.collect();
    let Some(verb) = VERBS.iter().find(|verb| verb.name == name) else {
        eprintln!("usage: cargo x VERB\n");
        for verb in VERBS {
            eprintln!("  {:8} {}", verb.name, verb.summary);
        }
        let asked_for_help = ["help", "--help", "-h"].contains(&name.as_str());
        return if asked_for_help { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    };
    match (verb.run)(&rest) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failed) => {
            eprintln!("cargo x {name}: {failed}");
            ExitCode::FAILURE
        }
    }
}
