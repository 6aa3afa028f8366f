// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo x package --check`: looks at the packages without installing them.
//!
//! Unpacks them into a folder, and lets others judge: lintian, man, the shells, systemd-analyze,
//! gdb's way to debug information. What is not here is skipped aloud.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::contents::UNITS;
use super::tree::{failed, set_mode};
use super::{Packages, is_here};
use crate::run::{Failed, run, stdout_of, target};

/// The most that systemd-analyze may find exposed, in tenths: it rates 0.0 (nothing) to 10.0.
const EXPOSED: [(&str, u32); 3] =
    [("flashfront@.service", 35), ("flashfront-local@.service", 50), ("flashfront-loop@.service", 40)];

pub(super) fn check(packages: &Packages) -> Result<(), Failed> {
    let folder = target().join("package/unpacked");
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(failed(&folder))?;
    }
    for package in [&packages.program, &packages.debug] {
        run(Command::new("dpkg-deb").arg("--extract").arg(package).arg(&folder))?;
    }
    program(&folder)?;
    lintian(packages)?;
    manual(&folder)?;
    completions(&folder)?;
    units(&folder)?;
    println!("package: {} is sound", packages.program.display());
    Ok(())
}

/// The unpacked program runs, and its debug information is found by the build ID.
fn program(folder: &Path) -> Result<(), Failed> {
    let program = folder.join("usr/bin/flashfront");
    let version = stdout_of(Command::new(&program).arg("--version"))?;
    expect(version.trim() == concat!("flashfront ", env!("CARGO_PKG_VERSION")), "the version", &version)?;
    let stripped = fs::metadata(&program).map_err(failed(&program))?.len();
    expect(stripped < 24 << 20, "the size of the stripped program", &stripped.to_string())?;
    let symbols = stdout_of(Command::new("find").arg(folder.join("usr/lib/debug")).args(["-name", "*.debug"]))?;
    let lines = stdout_of(Command::new("objdump").arg("--section-headers").arg(symbols.trim()))?;
    expect(lines.contains(".debug_line"), "lines in the debug information", &lines)
}

fn lintian(packages: &Packages) -> Result<(), Failed> {
    if !is_here("lintian") {
        return skip("lintian: it is not installed");
    }
    let mut lintian = Command::new("lintian");
    lintian.args(["--allow-root", "--fail-on", "error,warning", "--tag-display-limit", "0"]);
    run(lintian.arg(&packages.program).arg(&packages.debug))
}

/// Each page is troff that man(1) has nothing to say against.
fn manual(folder: &Path) -> Result<(), Failed> {
    if !is_here("man") {
        return skip("the manual: man is not installed");
    }
    let pages = stdout_of(Command::new("find").arg(folder.join("usr/share/man")).args(["-name", "*.gz"]))?;
    for page in pages.lines() {
        let mut man = Command::new("man");
        man.args(["--warnings", "--encoding=UTF-8", "--local-file", page])
            .env("MANWIDTH", "80")
            .env("LC_ALL", "C.UTF-8");
        let output = man.output().map_err(|error| Failed::Start { program: "man".to_owned(), error })?;
        let said = String::from_utf8_lossy(&output.stderr);
        expect(output.status.success() && said.is_empty(), &format!("no warning of {page}"), &said)?;
    }
    let count = pages.lines().count();
    expect(count > 15, "a page for each verb", &pages)
}

fn completions(folder: &Path) -> Result<(), Failed> {
    let scripts = [
        ("bash", "usr/share/bash-completion/completions/flashfront"),
        ("zsh", "usr/share/zsh/vendor-completions/_flashfront"),
        ("fish", "usr/share/fish/vendor_completions.d/flashfront.fish"),
    ];
    for (shell, script) in scripts {
        if is_here(shell) {
            run(Command::new(shell).arg("-n").arg(folder.join(script)))?;
            if shell == "bash" {
                completes(&folder.join(script))?;
            }
        } else {
            skip(&format!("completions of {shell}: it is not installed"))?;
        }
    }
    Ok(())
}

/// Checks that in bash the beginning of a verb becomes the verb.
fn completes(script: &Path) -> Result<(), Failed> {
    let asks = r#"source "$0"; COMP_WORDS=(flashfront adv); COMP_CWORD=1; _flashfront flashfront adv flashfront; echo "${COMPREPLY[*]}""#;
    let found = stdout_of(Command::new("bash").args(["-c", asks]).arg(script))?;
    expect(found.trim() == "advise", "advise, for adv", &found)
}

/// The units are what systemd understands, and expose no more than they did.
fn units(folder: &Path) -> Result<(), Failed> {
    if !is_here("systemd-analyze") {
        return skip("the units: systemd-analyze is not installed");
    }
    let places = folder.join("usr/lib/systemd/system");
    // `verify` looks for every command of a unit. These are of other packages.
    for program in ["bin/kill", "bin/mkdir"] {
        let place = folder.join(program);
        fs::create_dir_all(folder.join("bin")).map_err(failed(&place))?;
        fs::write(&place, "").map_err(failed(&place))?;
        set_mode(&place, 0o755)?;
    }
    for unit in UNITS {
        let name = unit.replace('@', "@data");
        let mut verify = Command::new("systemd-analyze");
        verify.args(["verify", "--man=no", "--recursive-errors=no"]).arg(format!("--root={}", folder.display()));
        let output =
            verify.arg(&name).output().map_err(|error| Failed::Start { program: "systemd-analyze".into(), error })?;
        let said = String::from_utf8_lossy(&output.stderr);
        let about_us: Vec<&str> = said.lines().filter(|line| line.contains("flashfront")).collect();
        expect(about_us.is_empty(), &format!("nothing to say against {name}"), &about_us.join("\n"))?;
    }
    for (unit, most) in EXPOSED {
        let mut security = Command::new("systemd-analyze");
        security.args(["security", "--offline=yes", "--no-pager"]).arg(format!("--threshold={most}"));
        let output = security.arg(places.join(unit)).output();
        let output = output.map_err(|error| Failed::Start { program: "systemd-analyze".into(), error })?;
        let said = String::from_utf8_lossy(&output.stdout);
        let rating = said.lines().rev().find(|line| line.contains("Overall exposure")).unwrap_or_default();
        println!("{}", rating.trim());
        expect(output.status.success() && !rating.is_empty(), &format!("{unit} at most {most} tenths exposed"), &said)?;
    }
    Ok(())
}

fn expect(holds: bool, what: &str, found: &str) -> Result<(), Failed> {
    if holds { Ok(()) } else { Err(Failed::Usage(format!("expected: {what}; found: {found}"))) }
}

/// Says what can't be looked at here; `./test` collects such lines.
fn skip(why: &str) -> Result<(), Failed> {
    println!("skipped: package: {why}");
    Ok(())
}
