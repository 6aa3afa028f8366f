// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo x fuzz [--seconds N] [--unguided] [TARGET...]`: hostile bytes, guided by coverage.
//!
//! `cargo x fuzz TARGET INPUT...` runs those inputs again. libFuzzer works with the stable
//! compiler: the coverage that guides it is a pass of LLVM, which rustc takes as an option of code
//! generation. It is C++, so it needs a C++ compiler. Where there is none, or the compiler does not
//! take the option, that is said aloud. Then the same targets run with random mutations of their
//! corpora. So they do with `--unguided`, which CI takes: to compile everything a second time, with
//! coverage, would take longer than to fuzz. Useful inputs of libFuzzer stay in
//! `target/fuzz/corpus`, and it goes on from there.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

use crate::run::{Failed, cargo, host, program, root, run};

/// Counters for every edge of the program, and the operands of its comparisons: what cargo-fuzz
/// asks of LLVM.
const COVERAGE: [&str; 5] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
];
/// The section of an object file that only the coverage pass makes.
const COUNTERS: &[u8] = b"__sancov_cntrs";

const SECONDS: u64 = 20;
/// The longest input: the structures it becomes are short, and long ones are slow.
const INPUT_BYTES_MAX: u64 = 1024;
/// Targets that run side by side.
const JOBS_MAX: usize = 2;
/// An input that takes longer is a hang; the machine may be busy with other things.
const HANG_SECONDS: u64 = 60;
const RSS_MIB_MAX: u64 = 1024;

/// The result of a target.
struct Ended {
    target: String,
    executions: u64,
    /// Edges of the program that were reached, if that is known.
    edges: Option<u64>,
    /// Its last words, and the input, if it found a bug.
    bug: Option<(String, Option<PathBuf>)>,
}

pub(crate) fn fuzz(args: &[String]) -> Result<(), Failed> {
    let (seconds, args) = match args {
        [option, seconds, rest @ ..] if option == "--seconds" => {
            let seconds = seconds.parse().map_err(|_| Failed::Usage(format!("`{seconds}` is no number of seconds")))?;
            (seconds, rest)
        }
        rest => (SECONDS, rest),
    };
    let (unguided, args) = match args {
        [option, rest @ ..] if option == "--unguided" => (true, rest),
        rest => (false, rest),
    };
    let all = targets()?;
    let (names, inputs): (Vec<&String>, Vec<&String>) = args.iter().partition(|arg| all.contains(arg));
    if let ([name], [_, ..]) = (names.as_slice(), inputs.as_slice()) {
        return run(plain()?.arg(name).args(&inputs));
    }
    if let Some(unknown) = inputs.first() {
        return Err(Failed::Usage(format!("`{unknown}` is no target; there are: {}", all.join(", "))));
    }
    let chosen: Vec<String> = if names.is_empty() { all } else { names.into_iter().cloned().collect() };
    let obstacle = if unguided { None } else { obstacle()? };
    if let Some(why) = &obstacle {
        eprintln!("skipped: fuzz: coverage: {why}; random mutations of the corpora instead, which find less");
    }
    let guided = !unguided && obstacle.is_none();
    if guided {
        build(&chosen)?
    } else {
        plain()?;
    }
    eprintln!("{} targets, {seconds} s each, {JOBS_MAX} at a time", chosen.len());
    let mut executions = 0;
    let mut crashes = 0;
    for ended in
        side_by_side(&chosen, |target| if guided { guided_run(target, seconds) } else { plain_run(target, seconds) })
    {
        let ended = ended?;
        executions += ended.executions;
        crashes += usize::from(ended.bug.is_some());
        report(&ended);
    }
    println!("fuzz: {} targets, {executions} executions, {crashes} crashes", chosen.len());
    if crashes == 0 { Ok(()) } else { Err(Failed::Findings(crashes)) }
}

fn report(ended: &Ended) {
    let edges = ended.edges.map_or_else(String::new, |edges| format!(", {edges} edges"));
    let crashes = usize::from(ended.bug.is_some());
    println!("fuzz {}: {} executions{edges}, {crashes} crashes", ended.target, ended.executions);
    if let Some((said, input)) = &ended.bug {
        println!("FAILED: {}: {said}", ended.target);
        if let Some(input) = input {
            let input = input.strip_prefix(root()).unwrap_or(input);
            println!("repeat: cargo x fuzz {} {}", ended.target, input.display());
        }
    }
}

/// Lists all targets: the files of `fuzz/fuzz_targets`.
fn targets() -> Result<Vec<String>, Failed> {
    let folder = root().join("fuzz/fuzz_targets");
    let fail = |error| Failed::File { path: folder.clone(), error };
    let mut names = Vec::new();
    for entry in std::fs::read_dir(&folder).map_err(fail)? {
        let path = entry.map_err(fail)?.path();
        names.extend(path.file_stem().map(|name| name.to_string_lossy().into_owned()));
    }
    names.sort();
    Ok(names)
}

fn place() -> PathBuf {
    root().join("target/fuzz")
}

/// Why libFuzzer can't be used here, if so.
fn obstacle() -> Result<Option<String>, Failed> {
    let compiler = std::env::var_os("CXX").unwrap_or_else(|| "c++".into());
    let works = Command::new(&compiler).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !works.is_ok_and(|status| status.success()) {
        return Ok(Some("libFuzzer needs a C++ compiler (apt-get install g++)".to_owned()));
    }
    let folder = place();
    let (source, object) = (folder.join("probe.rs"), folder.join("probe.o"));
    let fail = |path: &Path| {
        let path = path.to_owned();
        move |error| Failed::File { path, error }
    };
    std::fs::create_dir_all(&folder).map_err(fail(&folder))?;
    std::fs::write(&source, "#![no_std]\npub fn probe(x: u64) -> bool { x == 7 }\n").map_err(fail(&source))?;
    let mut rustc = Command::new("rustc");
    rustc.args(["--crate-type=lib", "--emit=obj", "--edition=2024"]).args(COVERAGE).arg("-o").arg(&object);
    rustc.arg(&source).current_dir(root()).stderr(Stdio::null());
    let status = rustc.status().map_err(|error| Failed::Start { program: "rustc".into(), error })?;
    let instruments = status.success() && {
        let bytes = std::fs::read(&object).map_err(fail(&object))?;
        bytes.windows(COUNTERS.len()).any(|window| window == COUNTERS)
    };
    Ok((!instruments).then(|| "this compiler does not instrument for it".to_owned()))
}

/// Builds the targets with libFuzzer.
fn build(targets: &[String]) -> Result<(), Failed> {
    // With --target, the flags reach the program but not build scripts and proc macros.
    let mut build = cargo(["build", "--quiet", "--release", "--manifest-path", "fuzz/Cargo.toml"]);
    build.args(["--locked", "--target", &host()?, "--target-dir"]).arg(place());
    for target in targets {
        build.args(["--bin", target]);
    }
    run(build.env("RUSTFLAGS", COVERAGE.join(" ")).env_remove("CARGO_ENCODED_RUSTFLAGS"))
}

/// Runs all, a few at a time; the results in the order of the list.
fn side_by_side<T: Send>(targets: &[String], one: impl Fn(&str) -> T + Sync) -> Vec<T> {
    let jobs = std::thread::available_parallelism().map_or(1, std::num::NonZero::get).min(JOBS_MAX);
    let next = Mutex::new(targets.iter().enumerate());
    let results = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                loop {
                    let taken = next.lock().expect("nobody panics holding it").next();
                    let Some((nth, target)) = taken else { return };
                    let result = one(target);
                    results.lock().expect("nobody panics holding it").push((nth, result));
                }
            });
        }
    });
    let mut results = results.into_inner().expect("nobody panicked holding it");
    results.sort_by_key(|(nth, _)| *nth);
    results.into_iter().map(|(_, result)| result).collect()
}

/// The folder for inputs that find a bug.
fn artifacts(target: &str) -> PathBuf {
    root().join("fuzz/artifacts").join(target)
}

fn guided_run(target: &str, seconds: u64) -> Result<Ended, Failed> {
    let (found, artifacts) = (place().join("corpus").join(target), artifacts(target));
    for folder in [&found, &artifacts] {
        std::fs::create_dir_all(folder).map_err(|error| Failed::File { path: folder.clone(), error })?;
    }
    let mut command = Command::new(place().join(host()?).join("release").join(target));
    command.arg(&found).arg(root().join("fuzz/corpus").join(target));
    command.arg(format!("-max_total_time={seconds}")).arg(format!("-timeout={HANG_SECONDS}"));
    command.arg(format!("-rss_limit_mb={RSS_MIB_MAX}")).arg("-print_final_stats=1");
    // Long inputs from the beginning: 20 s are too short to grow them.
    command.arg(format!("-max_len={INPUT_BYTES_MAX}")).arg("-len_control=0");
    command.arg(format!("-artifact_prefix={}/", artifacts.display()));
    ended(target, &mut command)
}

/// The targets without libFuzzer, freshly built.
fn plain() -> Result<Command, Failed> {
    let mut command = Command::new(program("flashfront-fuzz", &[])?);
    command.current_dir(root());
    Ok(command)
}

fn plain_run(target: &str, seconds: u64) -> Result<Ended, Failed> {
    let mut command = plain()?;
    command.args([target, "--seconds", &seconds.to_string(), "--artifacts"]).arg(artifacts(target));
    ended(target, &mut command)
}

/// Runs it, and reads what it says.
fn ended(target: &str, command: &mut Command) -> Result<Ended, Failed> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| Failed::Start { program: name, error })?;
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    let number_after = |mark: &str| {
        let (_, rest) = said.rsplit_once(mark)?;
        rest.split_whitespace().next()?.parse().ok()
    };
    let executions = number_after("stat::number_of_executed_units:").or_else(|| number_after("executions:"));
    let bug = (!output.status.success()).then(|| (what_went_wrong(&said), artifact_in(&said)));
    Ok(Ended { target: target.to_owned(), executions: executions.unwrap_or(0), edges: number_after(" cov: "), bug })
}

/// The panic, if there is one; else libFuzzer's summary, or the last line.
fn what_went_wrong(said: &str) -> String {
    let lines: Vec<&str> = said.lines().collect();
    if let Some(at) = lines.iter().position(|line| line.contains("panicked at")) {
        return lines[at..].iter().take(3).copied().collect::<Vec<_>>().join(" ");
    }
    let summary = lines.iter().find(|line| line.contains("SUMMARY:"));
    summary.or(lines.first()).copied().unwrap_or("it said nothing").to_owned()
}

/// The file with the input: libFuzzer names it after "written to", ours ends with it.
fn artifact_in(said: &str) -> Option<PathBuf> {
    let after = said.rsplit_once("written to ").map(|(_, rest)| rest);
    let line = after.and_then(|rest| rest.lines().next()).or_else(|| said.lines().last())?;
    Some(PathBuf::from(line.trim())).filter(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_libfuzzer_says_is_understood() {
        let said = "#2\tINITED cov: 12 ft: 13\n#9\tNEW    cov: 17 ft: 20\n\nthread '<unnamed>' panicked at src/x.rs:3:1:\n\
                    garbage\nnote: run\nstat::number_of_executed_units: 99\n";
        let mut echo = Command::new("printf");
        let ended = ended("t", echo.args(["%s", said])).unwrap();
        assert_eq!((ended.executions, ended.edges), (99, Some(17)));
        assert!(ended.bug.is_none(), "it exited with success");
        assert!(what_went_wrong(said).contains("src/x.rs:3:1: garbage"), "{}", what_went_wrong(said));
    }

    #[test]
    fn a_failure_names_its_input() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        let said = format!("artifact_prefix='x'; Test unit written to {file}\nBase64: AA==\n");
        assert_eq!(artifact_in(&said), Some(PathBuf::from(file)));
        assert_eq!(artifact_in(&format!("panicked\n{file}\n")), Some(PathBuf::from(file)));
        assert_eq!(artifact_in("nothing\n"), None);
    }

    #[test]
    fn results_come_in_order() {
        let names: Vec<String> = (0..20).map(|nth| nth.to_string()).collect();
        assert_eq!(side_by_side(&names, str::to_owned), names);
    }
}
