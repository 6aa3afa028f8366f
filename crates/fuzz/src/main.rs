// SPDX-License-Identifier: MIT OR Apache-2.0
//! The targets without libFuzzer: single inputs, and random mutations of the corpus.
//!
//! Not guided by coverage, so it finds less; but it needs nothing except the stable compiler.
//! `cargo x fuzz` falls back to it, and uses it to run an input again.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use flashfront_device::Rng;
use flashfront_fuzz::Target;
use flashfront_proof::panics;

const USAGE: &str = "\
usage: flashfront-fuzz TARGET INPUT...
       flashfront-fuzz TARGET --seconds N --artifacts FOLDER";

/// A run of this length is a hang: the longest honest one takes half a second.
const HANG: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let found = match args.split_first() {
        Some((name, rest)) => Target::named(name).map(|target| (target, rest)),
        None => None,
    };
    let ended = match found {
        Some((target, ["--seconds", seconds, "--artifacts", folder])) => match seconds.parse() {
            Ok(seconds) => fuzz(target, Duration::from_secs(seconds), Path::new(folder)),
            Err(_) => Err(USAGE.to_owned()),
        },
        Some((target, inputs @ [_, ..])) => again(target, inputs),
        _ => Err(USAGE.to_owned()),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs inputs of files; a panic ends it as panics do, with its place.
fn again(target: &Target, inputs: &[&str]) -> Result<(), String> {
    for input in inputs {
        let data = std::fs::read(input).map_err(|error| format!("{input}: {error}"))?;
        target.run(&data);
        println!("{input}: no bug");
    }
    Ok(())
}

fn fuzz(target: &'static Target, time: Duration, artifacts: &Path) -> Result<(), String> {
    let seed = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |it| it.as_nanos() as u64);
    let mut rng = Rng::new(seed);
    let corpus = read_all(&target.corpus())?;
    panics::keep();
    let watch = watch(artifacts.to_owned());
    let begun = Instant::now();
    let mut executions = 0_u64;
    let mut inputs = corpus.clone().into_iter();
    while begun.elapsed() < time {
        let input = inputs.next().unwrap_or_else(|| mutated(&corpus, target.input_bytes_max, &mut rng));
        // The watch ends with this thread only.
        let _ = watch.send(Some(input.clone()));
        if let Err(said) = panics::caught(|| target.run(&input)) {
            let place = keep(artifacts, "crash", &input)?;
            return Err(format!("{said}\n{}", place.display()));
        }
        let _ = watch.send(None);
        executions += 1;
    }
    println!("executions: {executions}");
    Ok(())
}

fn read_all(folder: &Path) -> Result<Vec<Vec<u8>>, String> {
    let fail = |error: std::io::Error| format!("{}: {error}", folder.display());
    let mut paths = std::fs::read_dir(folder)
        .map_err(fail)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<Vec<PathBuf>, _>>()
        .map_err(fail)?;
    paths.sort();
    paths.iter().map(|path| std::fs::read(path).map_err(fail)).collect()
}

/// An input of the corpus with a few changes; some with the tail of another.
fn mutated(corpus: &[Vec<u8>], most: usize, rng: &mut Rng) -> Vec<u8> {
    let one = |rng: &mut Rng| corpus.get(rng.below(corpus.len().max(1) as u64) as usize).cloned().unwrap_or_default();
    let mut input = one(rng);
    if rng.below(4) == 0 {
        let other = one(rng);
        input.truncate(rng.below(input.len() as u64 + 1) as usize);
        input.extend_from_slice(&other[rng.below(other.len() as u64 + 1) as usize..]);
    }
    for _ in 0..=rng.below(6) {
        let at = rng.below(input.len() as u64 + 1) as usize;
        let byte = match rng.below(4) {
            0 => 0,
            1 => 0xff,
            _ => rng.next_u64() as u8,
        };
        match (rng.below(5), input.get_mut(at)) {
            (0, Some(old)) => *old ^= 1 << rng.below(8),
            (1, Some(old)) => *old = old.wrapping_add_signed(rng.below(9) as i8 - 4),
            (2, Some(old)) => *old = byte,
            (3, Some(_)) => drop(input.remove(at)),
            _ => input.insert(at, byte),
        }
    }
    input.truncate(most);
    input
}

fn keep(folder: &Path, kind: &str, input: &[u8]) -> Result<PathBuf, String> {
    let hash = input
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    let place = folder.join(format!("{kind}-{hash:016x}"));
    let kept = std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&place, input));
    kept.map_err(|error| format!("{}: {error}", place.display()))?;
    Ok(place)
}

/// Ends the process when an input takes too long; hears of each before and after.
fn watch(artifacts: PathBuf) -> mpsc::Sender<Option<Vec<u8>>> {
    let (sender, receiver) = mpsc::channel::<Option<Vec<u8>>>();
    std::thread::spawn(move || {
        let mut running = None;
        loop {
            match receiver.recv_timeout(HANG) {
                Ok(input) => running = input,
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => {
                    if let Some(input) = &running {
                        let place = keep(&artifacts, "timeout", input);
                        eprintln!("a run takes longer than {} s\n{place:?}", HANG.as_secs());
                        std::process::exit(1);
                    }
                }
            }
        }
    });
    sender
}
