// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo x package`: the Debian package, and the package with its debug information.
//!
//! On stdout is the path of the package and nothing else. `--check` looks at packages that are made
//! of the release build, so that CI builds nothing a second time; `--test` installs packages.

mod check;
mod contents;
mod control;
mod copyright;
mod roots;
mod tree;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::run::{Failed, flashfront, packaged, root, run, stdout_of, target};
use tree::Tree;

/// The package's name, and that of the program.
const NAME: &str = "flashfront";

/// Programs that run here and are no part of every Debian: the program, and its package.
const PROGRAMS: [(&str, &str); 4] =
    [("dpkg-deb", "dpkg"), ("dpkg-shlibdeps", "dpkg-dev"), ("objcopy", "binutils"), ("gzip", "gzip")];

/// The packages of one version.
struct Packages {
    program: PathBuf,
    debug: PathBuf,
}

/// The verb.
pub(crate) fn package(args: &[String]) -> Result<(), Failed> {
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words[..] {
        [] => println!("{}", build(&packaged()?, 1)?.program.display()),
        ["--check"] => match missing(&PROGRAMS) {
            Ok(()) => check::check(&build(&flashfront()?, 1)?)?,
            Err(why) => println!("skipped: package: {why}"),
        },
        ["--test", ref suites @ ..] if suites.iter().all(|suite| roots::SUITES.contains(suite)) => {
            let built = packaged()?;
            roots::test(&build(&built, 1)?, &build(&built, 2)?, suites)?;
        }
        _ => {
            let suites = roots::SUITES.join("|");
            return Err(Failed::Usage(format!("usage: cargo x package [--check | --test [{suites}]...]")));
        }
    }
    Ok(())
}

/// Makes both packages of a program. `revision` is the last part of the version: a test upgrades
/// from 1 to 2.
fn build(built: &Path, revision: u32) -> Result<Packages, Failed> {
    missing(&PROGRAMS)?;
    let folder = target().join("package");
    let scratch = folder.join("scratch");
    if scratch.exists() {
        fs::remove_dir_all(&scratch).map_err(|error| Failed::File { path: scratch.clone(), error })?;
    }
    let version = format!("{}-{revision}", env!("CARGO_PKG_VERSION"));
    let (program, debug) = (Tree::new(scratch.join(NAME))?, Tree::new(scratch.join("dbgsym"))?);
    let build_id = strip(built, &program, &debug)?;
    contents::add(&program, built, &version)?;
    let architecture = stdout_of(Command::new("dpkg").arg("--print-architecture"))?.trim().to_owned();
    let about = control::About { version, architecture, build_id };
    control::of_program(&program, &scratch, &about)?;
    control::of_debug(&debug, &about)?;
    let into = |package: &str| folder.join(format!("{package}_{}_{}.deb", about.version, about.architecture));
    let packages = Packages { program: into(NAME), debug: into("flashfront-dbgsym") };
    // Thrice as fast as the best compression, for a third more bytes.
    program.pack(&packages.program, "-z6")?;
    debug.pack(&packages.debug, "-z1")?;
    Ok(packages)
}

/// Cuts the program from its debug information, which gdb and backtraces find by the build ID.
fn strip(built: &Path, program: &Tree, debug: &Tree) -> Result<String, Failed> {
    let notes = stdout_of(Command::new("readelf").args(["--wide", "--notes"]).arg(built))?;
    let id = notes.split_once("Build ID: ").and_then(|(_, id)| id.split_whitespace().next()).map(str::to_owned);
    let Some(id) = id.filter(|id| id.len() > 2) else {
        return Err(Failed::Usage(format!("{}: no build ID, by which debug information is found", built.display())));
    };
    let symbols = debug.place(&format!("usr/lib/debug/.build-id/{}/{}.debug", &id[..2], &id[2..]))?;
    let objcopy = || Command::new("objcopy");
    run(objcopy().args(["--only-keep-debug", "--compress-debug-sections"]).arg(built).arg(&symbols))?;
    tree::set_mode(&symbols, 0o644)?;
    let stripped = program.place("usr/bin/flashfront")?;
    run(objcopy().args(["--strip-all", "--remove-section=.comment"]).arg(built).arg(&stripped))?;
    tree::set_mode(&stripped, 0o755)?;
    Ok(id)
}

/// Whether a program is here.
fn is_here(program: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let more = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&paths).chain(more).any(|folder| folder.join(program).is_file())
}

/// Says which packages are missing here.
fn missing(programs: &[(&str, &str)]) -> Result<(), Failed> {
    let absent: Vec<&str> =
        programs.iter().filter(|(program, _)| !is_here(program)).map(|(_, package)| *package).collect();
    if absent.is_empty() {
        return Ok(());
    }
    Err(Failed::Usage(format!("missing here: apt-get install {}", absent.join(" "))))
}

/// A file of the folder packaging/.
fn ours(name: &str) -> PathBuf {
    root().join("packaging").join(name)
}
