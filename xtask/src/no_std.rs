// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo x no-std`: proves that the engine has no std, and that the program's engine has no
//! planted bugs.
//!
//! Without std it has no clock, thread, file or random hasher. The proof is a build against a
//! sysroot that holds core and alloc only. With it `extern crate std` is an error, in the engine
//! and in everything it depends on. It needs no other target than the host's, so nothing is
//! downloaded. Two probes show each time that the trap is set. The list of allowed dependencies and
//! `forbid(unsafe_code)` keep other ways to the system out (libc, inline assembly).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::run::{Failed, cargo, host, read, root, run, stdout_of};

/// The engine's package, and the folder of its crate.
const ENGINE: (&str, &str) = ("flashfront-engine", "crates/engine");

/// The allowed dependencies of the engine: `cargo tree` names each package with the features it
/// has.
///
/// A feature not listed here fails as a package would: a default hasher is a feature.
const ALLOWED: [(&str, &[&str]); 6] = [
    ("flashfront-engine", &[]),
    ("crc", &[]),
    ("crc-catalog", &[]),
    ("slab", &[]),
    ("smallvec", &["union"]),
    ("zerocopy", &["derive", "zerocopy-derive"]),
];

/// The crates of the sysroot that a crate without std may see.
const SYSROOT: [&str; 3] = ["libcore-", "liballoc-", "libcompiler_builtins-"];

/// The lines that the engine's lib.rs must have.
const ATTRIBUTES: [&str; 2] = ["#![no_std]", "#![forbid(unsafe_code)]"];

pub(crate) fn no_std(_args: &[String]) -> Result<(), Failed> {
    let mut findings = attributes()?;
    findings.extend(dependencies()?);
    findings.extend(crate::proof::no_canaries()?);
    let place = root().join("target/no-std");
    let host = host()?;
    let sysroot = sysroot_without_std(&place, &host)?;
    findings.extend(probes(&place, &sysroot)?);
    for finding in &findings {
        eprintln!("no-std: {finding}");
    }
    if !findings.is_empty() {
        return Err(Failed::Findings(findings.len()));
    }
    // With --target, RUSTFLAGS reach the engine but not the proc macros, which need std to run.
    let flags = format!("--sysroot={}", sysroot.display());
    run(cargo(["build", "--quiet", "--release", "--package", ENGINE.0, "--target", &host, "--target-dir"])
        .arg(place.join("build"))
        .env("RUSTFLAGS", flags)
        .env_remove("CARGO_ENCODED_RUSTFLAGS"))?;
    println!("no-std: {} and its dependencies build without std", ENGINE.0);
    Ok(())
}

/// The engine must say itself that it has no std and no unsafe code.
fn attributes() -> Result<Vec<String>, Failed> {
    let lib = read(&root().join(ENGINE.1).join("src/lib.rs"))?;
    let missing = ATTRIBUTES.into_iter().filter(|wanted| !lib.lines().any(|line| line.trim() == *wanted));
    Ok(missing.map(|wanted| format!("{}/src/lib.rs lacks {wanted}", ENGINE.1)).collect())
}

/// The engine's dependencies, and their features, must all be on the list.
fn dependencies() -> Result<Vec<String>, Failed> {
    let tree = ["tree", "--package", ENGINE.0, "--edges", "normal,no-proc-macro", "--prefix", "none"];
    let tree = stdout_of(cargo(tree).args(["--format", "{p}|{f}|"]))?;
    Ok(not_allowed(&tree))
}

fn not_allowed(tree: &str) -> Vec<String> {
    let mut findings = Vec::new();
    for line in tree.lines() {
        let mut fields = line.split('|');
        let package = fields.next().and_then(|it| it.split(' ').next()).unwrap_or_default();
        let features = fields.next().unwrap_or_default().split(',').filter(|it| !it.is_empty());
        match ALLOWED.iter().find(|(name, _)| *name == package) {
            None => findings.push(format!("dependency {package} is not on the list in xtask/src/no_std.rs")),
            Some((_, allowed)) => findings.extend(
                features
                    .filter(|feature| !allowed.contains(feature))
                    .map(|feature| format!("feature {feature} of {package} is not on the list")),
            ),
        }
    }
    findings
}

/// Makes a sysroot for `host` that links to core and alloc of the real one, and to nothing else.
fn sysroot_without_std(place: &Path, host: &str) -> Result<PathBuf, Failed> {
    let real = stdout_of(Command::new("rustc").args(["--print", "sysroot"]).current_dir(root()))?;
    let libraries = Path::new("lib/rustlib").join(host).join("lib");
    let from = Path::new(real.trim()).join(&libraries);
    let sysroot = place.join("sysroot");
    let to = sysroot.join(&libraries);
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |error| Failed::File { path, error }
    };
    if sysroot.exists() {
        fs::remove_dir_all(&sysroot).map_err(failed(&sysroot))?;
    }
    fs::create_dir_all(&to).map_err(failed(&to))?;
    for entry in fs::read_dir(&from).map_err(failed(&from))? {
        let entry = entry.map_err(failed(&from))?;
        let name = entry.file_name();
        if SYSROOT.iter().any(|prefix| name.to_string_lossy().starts_with(prefix)) {
            std::os::unix::fs::symlink(entry.path(), to.join(&name)).map_err(failed(&to))?;
        }
    }
    Ok(sysroot)
}

/// A crate with alloc must build against `sysroot`, one with std must not.
fn probes(place: &Path, sysroot: &Path) -> Result<Vec<String>, Failed> {
    let mut findings = Vec::new();
    for (krate, builds) in [("alloc", true), ("std", false)] {
        let source = place.join(format!("probe_{krate}.rs"));
        let text = format!("#![no_std]\nextern crate {krate};\n");
        fs::write(&source, text).map_err(|error| Failed::File { path: source.clone(), error })?;
        let mut rustc = Command::new("rustc");
        rustc.args(["--crate-type=lib", "--emit=metadata", "--edition=2024", "--out-dir"]).arg(place);
        rustc.arg("--sysroot").arg(sysroot).arg(&source).current_dir(root()).stderr(Stdio::null());
        let status = rustc.status().map_err(|error| Failed::Start { program: "rustc".into(), error })?;
        if status.success() != builds {
            let verb = if builds { "fails to build" } else { "builds" };
            findings.push(format!("the check itself is broken: a crate with {krate} {verb}"));
        }
    }
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listed_tree_is_allowed() {
        assert_eq!(not_allowed("slab v0.4.12||\nzerocopy v0.8.1|derive|\n"), Vec::<String>::new());
    }

    #[test]
    fn an_unlisted_package_or_feature_is_not() {
        let findings = not_allowed("slab v0.4.12|std|\nlibc v0.2.1||\n");
        assert_eq!(findings.len(), 2, "{findings:?}");
        assert!(findings[0].contains("std") && findings[1].contains("libc"), "{findings:?}");
    }
}
