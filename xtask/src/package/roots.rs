// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo x package --test`: the package's life in clean roots of Debian.
//!
//! For each release mmdebstrap makes a root, once. There `inside.sh` installs the package, runs the
//! commands of its units, upgrades while a volume is served, removes and purges. With
//! systemd-nspawn systemd is booted in the root, and runs the units with all their restrictions.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::tree::failed;
use super::{Packages, is_here};
use crate::run::{Failed, run, target};

/// The releases that the package is for.
pub(super) const SUITES: [&str; 2] = ["bookworm", "trixie"];

/// The packages of the root beside the essential ones: they run units, and are clients.
const INCLUDE: &str = "systemd,systemd-sysv,udev,init-system-helpers,e2fsprogs,mount,qemu-utils,man-db,kmod,procps";

/// Runs in the root; ends with a line `passed` or `FAILED`.
const INSIDE: &str = include_str!("inside.sh");

/// Starts it as a unit of the booted system.
const UNIT: &str = "\
[Unit]
Description=Test of the package
After=multi-user.target
SuccessAction=poweroff-force
FailureAction=poweroff-force

[Service]
Type=oneshot
ExecStart=/bin/sh /test/inside.sh systemd
StandardOutput=file:/test/log
StandardError=inherit
TimeoutStartSec=900
";

pub(super) fn test(old: &Packages, new: &Packages, suites: &[&str]) -> Result<(), Failed> {
    let suites = if suites.is_empty() { &SUITES[..] } else { suites };
    if !is_here("mmdebstrap") {
        println!("skipped: package: clean roots need mmdebstrap (apt-get install mmdebstrap)");
        return Ok(());
    }
    if !rustix_is_root() {
        println!("skipped: package: clean roots need root");
        return Ok(());
    }
    for suite in suites {
        let tar = made(suite)?;
        let root = target().join("package/roots").join(suite);
        let root = Root::unpacked(&tar, root)?;
        root.put(old, new)?;
        root.live(suite)?;
    }
    println!("package: it lives in {}", suites.join(" and "));
    Ok(())
}

fn rustix_is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|meta| std::os::unix::fs::MetadataExt::uid(&meta) == 0)
}

/// The root of a release, as a tar file: made once, since it takes minutes.
fn made(suite: &str) -> Result<PathBuf, Failed> {
    let folder = target().join("package/roots");
    fs::create_dir_all(&folder).map_err(failed(&folder))?;
    let tar = folder.join(format!("{suite}.tar"));
    if !tar.exists() {
        let half = folder.join(format!("{suite}.half.tar"));
        eprintln!("package: making a root of {suite}; minutes");
        let mut make = Command::new("mmdebstrap");
        make.args(["--quiet", "--variant=minbase", &format!("--include={INCLUDE}"), suite]).arg(&half);
        run(&mut make)?;
        fs::rename(&half, &tar).map_err(failed(&half))?;
    }
    Ok(tar)
}

/// An unpacked root; it goes when it is dropped, as what is mounted in it went with its namespace.
struct Root {
    folder: PathBuf,
}

impl Root {
    fn unpacked(tar: &Path, folder: PathBuf) -> Result<Self, Failed> {
        let root = Self { folder };
        root.remove();
        fs::create_dir_all(&root.folder).map_err(failed(&root.folder))?;
        run(Command::new("tar").arg("--extract").arg("--file").arg(tar).arg("--directory").arg(&root.folder))?;
        Ok(root)
    }

    fn remove(&self) {
        // One file system only: nothing that is still mounted is emptied.
        let _ = Command::new("rm").args(["--recursive", "--force", "--one-file-system"]).arg(&self.folder).status();
    }

    /// Puts the packages and the test into the root.
    fn put(&self, old: &Packages, new: &Packages) -> Result<(), Failed> {
        let test = self.folder.join("test");
        fs::create_dir_all(&test).map_err(failed(&test))?;
        for (from, to) in [(&old.program, "old.deb"), (&old.debug, "debug.deb"), (&new.program, "new.deb")] {
            fs::copy(from, test.join(to)).map_err(failed(from))?;
        }
        let units = self.folder.join("etc/systemd/system");
        let wants = units.join("multi-user.target.wants");
        fs::create_dir_all(&wants).map_err(failed(&wants))?;
        let link = wants.join("package-test.service");
        std::os::unix::fs::symlink("../package-test.service", &link).map_err(failed(&link))?;
        for (path, text) in [(test.join("inside.sh"), INSIDE), (units.join("package-test.service"), UNIT)] {
            fs::write(&path, text).map_err(failed(&path))?;
        }
        Ok(())
    }

    fn live(&self, suite: &str) -> Result<(), Failed> {
        let log = self.folder.join("test/log");
        if is_here("systemd-nspawn") {
            let mut boot = Command::new("systemd-nspawn");
            boot.arg("--directory").arg(&self.folder).args(["--register=no", "--keep-unit", "--boot", "--quiet"]);
            let console = self.folder.join("test/console");
            let output = fs::File::create(&console).map_err(failed(&console))?;
            boot.stdin(std::process::Stdio::null())
                .stderr(output.try_clone().map_err(failed(&console))?)
                .stdout(output);
            // Its exit code is that of the power-off; the log has the last word.
            let _ = boot.status();
        }
        let booted = log.exists();
        if !booted {
            println!("skipped: package: systemd in {suite}: systemd-nspawn (systemd-container) did not boot it");
            let mut chroot = Command::new("unshare");
            chroot
                .args(["--mount", "--pid", "--fork", "--kill-child"])
                .arg(format!("--root={}", self.folder.display()));
            let _ = chroot.args(["sh", "-c", "sh /test/inside.sh plain >/test/log 2>&1"]).status();
        }
        let text = fs::read_to_string(&log).map_err(failed(&log))?;
        let how = if booted { "under systemd" } else { "without systemd" };
        println!("== {suite}, {how}\n{text}");
        if text.lines().last() == Some("passed") { Ok(()) } else { Err(Failed::Findings(1)) }
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        if std::env::var_os("FLASHFRONT_KEEP").is_none() {
            self.remove();
        }
    }
}
