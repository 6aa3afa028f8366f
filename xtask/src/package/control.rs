// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes the control files of the packages for dpkg: name, version, dependencies, and scripts.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::tree::{Tree, failed};
use super::{NAME, ours};
use crate::run::{Failed, stdout_of};

/// The maker of the package. dpkg wants an address; this one leads nowhere, as there is none.
pub(super) const MAINTAINER: &str = "Flashfront contributors <flashfront@flashfront.invalid>";

const SUMMARY: &str = "SSD block cache in user space, for disks and network volumes";

/// The fields that both packages have in common.
pub(super) struct About {
    pub(super) version: String,
    pub(super) architecture: String,
    pub(super) build_id: String,
}

/// Scripts that dpkg runs, from packaging/debian.
const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];

/// Files of /etc that an upgrade leaves alone once they were changed.
const CONFFILES: &str = "/etc/needrestart/conf.d/flashfront.conf\n";

/// The package of the program.
pub(super) fn of_program(tree: &Tree, scratch: &Path, about: &About) -> Result<(), Failed> {
    let depends = depends(tree, scratch)?;
    let head = head(tree, NAME, about)?;
    let text = format!(
        "{head}Section: admin\nPriority: optional\nDepends: {depends}, procps\nRecommends: systemd, udev\nSuggests: fuse3, libnbd-bin, man-db, nbd-client, qemu-utils\nDescription: {SUMMARY}
 Flashfront puts a fast device (SSD, NVMe) in front of a slow one (disk,
 array, network volume) and serves the two as one block device: over NBD,
 to virtual machines over vhost-user-blk, as a ublk device, or as a file
 for a loop device. The slow device keeps its format.
 .
 Volumes are services: flashfront@NAME has /etc/flashfront/NAME.toml. An
 upgrade of this package stops none of them.\n"
    );
    tree.write("DEBIAN/control", 0o644, text)?;
    tree.write("DEBIAN/conffiles", 0o644, CONFFILES)?;
    for script in SCRIPTS {
        tree.copy(&ours("debian").join(script), &format!("DEBIAN/{script}"), 0o755)?;
    }
    Ok(())
}

/// The package of the debug information, as Debian's own are.
pub(super) fn of_debug(tree: &Tree, about: &About) -> Result<(), Failed> {
    // The folder of its papers is that of the program's package, as Debian has it.
    tree.folder("usr/share/doc")?;
    let link = tree.root().join("usr/share/doc/flashfront-dbgsym");
    std::os::unix::fs::symlink(NAME, &link).map_err(failed(&link))?;
    let head = head(tree, "flashfront-dbgsym", about)?;
    let text = format!(
        "{head}Section: debug\nPriority: optional\nSource: {NAME}\nDepends: {NAME} (= {version})\nAuto-Built-Package: debug-symbols\nBuild-Ids: {id}\nDescription: debug symbols for {NAME}\n",
        version = about.version,
        id = about.build_id,
    );
    tree.write("DEBIAN/control", 0o644, text)
}

fn head(tree: &Tree, name: &str, about: &About) -> Result<String, Failed> {
    let files = tree.files()?;
    let mut sums = Command::new("md5sum");
    sums.arg("--").args(&files).current_dir(tree.root());
    tree.write("DEBIAN/md5sums", 0o644, stdout_of(&mut sums)?)?;
    let sizes = files.iter().map(|file| {
        let path = tree.root().join(file);
        fs::metadata(&path).map(|meta| meta.len().div_ceil(1024)).map_err(failed(&path))
    });
    let kib: u64 = sizes.sum::<Result<u64, Failed>>()?;
    let About { version, architecture, .. } = about;
    Ok(format!(
        "Package: {name}\nVersion: {version}\nArchitecture: {architecture}\nMaintainer: {MAINTAINER}\nInstalled-Size: {kib}\n"
    ))
}

/// The libraries that the program is linked with, in the versions whose symbols it uses.
fn depends(tree: &Tree, scratch: &Path) -> Result<String, Failed> {
    // dpkg-shlibdeps wants to stand in a source package.
    let debian = scratch.join("debian");
    fs::create_dir_all(&debian).map_err(failed(&debian))?;
    let control = debian.join("control");
    fs::write(&control, format!("Source: {NAME}\n\nPackage: {NAME}\nArchitecture: any\n")).map_err(failed(&control))?;
    let mut shlibdeps = Command::new("dpkg-shlibdeps");
    shlibdeps.args(["-O", "-e"]).arg(tree.root().join("usr/bin/flashfront")).current_dir(scratch);
    let found = stdout_of(&mut shlibdeps)?;
    let depends = found.lines().find_map(|line| line.strip_prefix("shlibs:Depends="));
    depends.map(str::to_owned).ok_or_else(|| Failed::Usage(format!("dpkg-shlibdeps said no libraries: {found}")))
}
