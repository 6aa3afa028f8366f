// SPDX-License-Identifier: MIT OR Apache-2.0
//! The book's devices, and its files: configuration, units, XML. Runs no commands of a page.

use std::fs::{self, File};
use std::path::Path;

use rustix::fs::{FallocateFlags, fallocate};

use super::page::{Block, Kind, Page};
use super::program;
use crate::harness::{MIB, Place, flashfront, output, show, skip_without, tool};

/// The devices that pages name: each is a file of that many MiB here.
const DEVICES: [(&str, &str, u64); 5] = [
    ("/dev/disk/by-id/nvme-fast-part4", "fast", 96),
    ("/dev/disk/by-id/nvme-other-part4", "other", 96),
    ("/dev/disk/by-id/nvme-new-part4", "new", 96),
    ("/dev/disk/by-id/ata-slow", "slow", 256),
    ("/dev/disk/by-id/ata-large", "large", 512),
];

/// Where a session has them.
pub(super) const FOLDER: &str = "/run/devices";

/// Where pages have the program when a file must name it by its path.
const INSTALLED: &str = "/usr/bin/flashfront";

/// Makes what stands for the devices of the book.
pub(super) fn make_devices(folder: &Path) {
    for (_, name, mib) in DEVICES {
        let file = File::create(folder.join(name)).expect("a file can be made here");
        // With all its space, as a device has it.
        fallocate(&file, FallocateFlags::empty(), 0, mib * MIB).expect("a file can have all its space here");
    }
}

/// The text with the names that devices have in a session.
pub(super) fn here(text: &str) -> String {
    DEVICES.iter().fold(text.to_owned(), |text, (name, file, _)| text.replace(name, &format!("{FOLDER}/{file}")))
}

/// Has a file of the page read by the program that it is for.
pub(super) fn check(page: &Page, block: &Block, place: &Place) {
    match block.kind {
        Kind::Shell | Kind::Elsewhere => {}
        Kind::Toml => configuration(page, block, place),
        Kind::Xml => domain(page, block, place),
        Kind::Unit => unit(page, block, place),
        Kind::Yaml => prometheus(page, block, place),
    }
}

/// Where the block says that it belongs: its first line is a comment with an absolute path.
pub(super) fn path_of(block: &Block) -> Option<&Path> {
    let path = block.text.lines().next()?.strip_prefix("# ")?;
    path.starts_with('/').then(|| Path::new(path))
}

/// The daemon reads the file, and then misses the first device, which is not there by its name.
fn configuration(page: &Page, block: &Block, place: &Place) {
    let missing = |name: &str| place.file(&format!("there-is-no-{name}")).display().to_string();
    let text = block.text.clone();
    let mut text = DEVICES.iter().fold(text, |text, (name, file, _)| text.replace(name, &missing(file)));
    // A part of a file gets what the daemon can't be without.
    if !text.lines().any(|line| line.starts_with("cache = ")) {
        text = format!("cache = {:?}\n{text}", missing("fast"));
    }
    if !text.contains("[[volume]]") {
        text += &format!("[[volume]]\norigin = {:?}\n", missing("slow"));
    }
    if !text.contains("[[listen]]") {
        text += &format!("[[listen]]\nnbd = \"unix:{}\"\n", place.socket("s").display());
    }
    let file = place.file("page.toml");
    fs::write(&file, text).expect("a file can be made here");
    let output = output(flashfront().args(["serve", "--config"]).arg(&file));
    let words = String::from_utf8_lossy(&output.stderr);
    let read = output.status.code() == Some(1) && words.contains("there-is-no-");
    assert!(read, "{}:{}: the daemon does not take this: {}", page.path, block.line, show(&output));
}

/// libvirt's own schema takes the elements in a domain.
fn domain(page: &Page, block: &Block, place: &Place) {
    if skip_without(&["virt-xml-validate", "xmllint"]) {
        return;
    }
    let (devices, others) = block.text.split_at(block.text.find("<disk").unwrap_or(block.text.len()));
    let text = format!(
        "<domain type='kvm'><name>a</name><memory>1048576</memory><os><type>hvm</type></os>{devices}<devices>{others}</devices></domain>"
    );
    let file = place.file("page.xml");
    fs::write(&file, text).expect("a file can be made here");
    let output = output(tool("virt-xml-validate").arg(&file).arg("domain"));
    assert!(output.status.success(), "{}:{}: {}", page.path, block.line, show(&output));
}

/// systemd finds nothing wrong in the unit, or in a drop-in as a part of a service.
fn unit(page: &Page, block: &Block, place: &Place) {
    let path = path_of(block);
    let path = path.unwrap_or_else(|| panic!("{}:{}: a unit begins with `# /path/of/its/file`", page.path, block.line));
    if skip_without(&["systemd-analyze"]) {
        return;
    }
    let text = block.text.replace(INSTALLED, &program().display().to_string());
    let (name, text) = match path.extension() {
        Some(it) if it == "conf" => ("drop-in.service".into(), format!("[Service]\nExecStart=/bin/true\n{text}")),
        _ => (path.file_name().unwrap_or_default().to_owned(), text),
    };
    let file = place.dir().join(&name);
    fs::write(&file, text).expect("a file can be made here");
    let output = output(tool("systemd-analyze").args(["verify", "--man=no"]).arg(&file));
    // An unknown key is only a warning.
    let named = String::from_utf8_lossy(&output.stderr).contains(&*name.to_string_lossy());
    assert!(output.status.success() && !named, "{}:{}: {}", page.path, block.line, show(&output));
}

/// Prometheus takes the configuration, beside our rules.
fn prometheus(page: &Page, block: &Block, place: &Place) {
    if skip_without(&["promtool"]) {
        return;
    }
    let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib/prometheus/flashfront.rules.yml");
    fs::copy(rules, place.file("flashfront.rules.yml")).expect("the rules are there");
    let file = place.file("page.yml");
    fs::write(&file, &block.text).expect("a file can be made here");
    let output = output(tool("promtool").args(["check", "config"]).arg(&file));
    assert!(output.status.success(), "{}:{}: {}", page.path, block.line, show(&output));
}
