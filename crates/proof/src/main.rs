// SPDX-License-Identifier: MIT OR Apache-2.0
//! The program runs the proofs on all cores, for `cargo x sweep` and `cargo x torture`.
//!
//! Progress goes to stderr. Stdout gets one line at the end, and for each violation a line that
//! reproduces it.
#![forbid(unsafe_code)]

mod prove;

use std::process::ExitCode;

use prove::{USAGE, canaries, golden, objects, sweep, torture};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let proved = match args.split_first() {
        Some((&"sweep", rest)) => sweep::main(rest),
        Some((&"torture", ["--objects", rest @ ..])) => objects::main(rest),
        Some((&"torture", rest)) => torture::main(rest),
        Some((&"golden", rest)) => golden::main(rest),
        Some((&"canaries", ["--objects"])) => objects::main(&["--canaries"]),
        Some((&"canaries", rest)) => canaries::main(rest),
        Some((&"canary", [name, "torture", rest @ ..])) => canaries::plant(name).and_then(|()| torture::main(rest)),
        Some((&"canary", [name, "sweep", rest @ ..])) => canaries::plant(name).and_then(|()| sweep::main(rest)),
        _ => Err(USAGE.to_owned()),
    };
    match proved {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}
