// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo x bench [PART]`: what is promised of speed and memory, measured on this machine.
//!
//! Parts: `in-process` and `nbd` (speed, as ratios in one run: the default), `threads`,
//! `huge-pages`, `vhost-user-blk`, `objects`, `engine`, `memory`, `volumes`, `predicted`,
//! `recovery`. Medians; losing rows stay. Results go to bench/runs/DATE-PROCESSOR/ with `--keep`,
//! else to the screen only; `--json`: only the JSON.

mod engine;
mod far;
mod found;
mod in_process;
mod memory;
mod nbd;
mod objects;
mod predicted;
mod server;
mod store;
mod variants;
mod vhost;
mod volumes;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::run::{Failed, example, root, stdout_of};
pub(crate) use found::{Found, keep, parse};

/// A part: its name, whether it runs unasked, what it does with the folder for its files.
struct Part {
    name: &'static str,
    unasked: bool,
    measure: fn(&Path) -> Result<Found, Failed>,
}

const PARTS: [Part; 11] = [
    Part { name: "in-process", unasked: true, measure: in_process::in_process },
    Part { name: "nbd", unasked: true, measure: nbd::nbd },
    Part { name: "threads", unasked: false, measure: variants::threads },
    Part { name: "huge-pages", unasked: false, measure: variants::huge_pages },
    Part { name: "vhost-user-blk", unasked: false, measure: vhost::vhost_user_blk },
    Part { name: "objects", unasked: false, measure: objects::objects },
    Part { name: "engine", unasked: false, measure: engine::engine },
    Part { name: "memory", unasked: false, measure: memory::memory },
    Part { name: "volumes", unasked: false, measure: volumes::volumes },
    Part { name: predicted::NAME, unasked: false, measure: predicted::predicted },
    Part { name: "recovery", unasked: false, measure: recovery },
];

const FLAGS: [&str; 3] = ["--dir", "--json", "--keep"];

/// Runs the benchmarks. `--keep` writes them into the tree; `--dir DIR`: where the files are made.
pub(crate) fn bench(args: &[String]) -> Result<(), Failed> {
    let dir = args.iter().position(|arg| arg == "--dir").and_then(|at| args.get(at + 1));
    if let Some(unknown) = args.iter().find(|arg| arg.starts_with("--") && !FLAGS.contains(&arg.as_str())) {
        return Err(Failed::Usage(format!("no flag {unknown}; there are {}", FLAGS.join(", "))));
    }
    let named: Vec<&String> = args.iter().filter(|arg| !arg.starts_with("--") && Some(*arg) != dir).collect();
    if let Some(unknown) = named.iter().find(|name| PARTS.iter().all(|part| part.name != name.as_str())) {
        let names: Vec<&str> = PARTS.iter().map(|part| part.name).collect();
        return Err(Failed::Usage(format!("no part {unknown}; there are {}", names.join(", "))));
    }
    let dir = dir.map_or_else(|| root().join("bench/out"), PathBuf::from);
    fs::create_dir_all(&dir).map_err(|error| Failed::File { path: dir.clone(), error })?;
    for part in &PARTS {
        if !(named.iter().any(|name| *name == part.name) || named.is_empty() && part.unasked) {
            continue;
        }
        let found = (part.measure)(&dir)?;
        let json = found.json.as_deref().unwrap_or_default();
        if args.iter().any(|arg| arg == "--json") {
            println!("{json}");
        } else {
            println!("{}\n{json}", found.summary);
        }
        if args.iter().any(|arg| arg == "--keep") {
            let command = format!("cargo x bench {} --keep", part.name);
            keep(part.name, part.name == predicted::NAME, &command, &found)?;
        }
    }
    Ok(())
}

/// How long full caches of several sizes take to open, on a device model, by one thread and by as
/// many as there are processors.
fn recovery(_: &Path) -> Result<Found, Failed> {
    let program = example("flashfront-proof", "recovery")?;
    let threads = match std::thread::available_parallelism().map_or(1, usize::from) {
        1 => "1".to_owned(),
        all => format!("1,{all}"),
    };
    Ok(Found { summary: stdout_of(Command::new(program).args(["--threads", &threads]))?, json: None })
}
