// SPDX-License-Identifier: MIT OR Apache-2.0
//! The machine and its devices, as far as figures hang on them: read from /proc and /sys.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::results::{Device, Environment};

impl Environment {
    /// This machine's.
    #[must_use]
    pub fn here(flashfront: &str, fio: Option<&str>) -> Self {
        let system = rustix::system::uname();
        let text = |part: &std::ffi::CStr| part.to_string_lossy().into_owned();
        let processors = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let kib =
            memory.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")?.parse().ok());
        Self {
            flashfront: flashfront.to_owned(),
            fio: fio.map(str::to_owned),
            kernel: format!("{} {} {}", text(system.sysname()), text(system.release()), text(system.version())),
            architecture: text(system.machine()),
            cpu: cpu(&processors),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: kib.unwrap_or(0_u64) * 1024,
            virtual_machine: processors
                .lines()
                .any(|line| line.starts_with("flags") && line.split_whitespace().any(|flag| flag == "hypervisor")),
        }
    }

    /// Lists the differences to another environment, in words.
    #[must_use]
    pub fn differs(&self, other: &Self) -> Vec<String> {
        let fields = |it: &Self| {
            [
                ("Flashfront", it.flashfront.clone()),
                ("fio", it.fio.clone().unwrap_or_default()),
                ("kernel", it.kernel.clone()),
                ("processor", format!("{} x {}", it.cpus, it.cpu)),
                ("RAM", format!("{} MiB", it.memory_bytes >> 20)),
            ]
        };
        let pairs = fields(self).into_iter().zip(fields(other));
        pairs.filter(|(one, two)| one != two).map(|(one, two)| format!("{}: {} and {}", one.0, one.1, two.1)).collect()
    }
}

fn cpu(processors: &str) -> String {
    let of = |key: &str| {
        let line = processors.lines().find(|line| line.starts_with(key))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    ["model name", "Model", "Hardware", "cpu model"].into_iter().find_map(of).unwrap_or_else(|| "unknown".to_owned())
}

/// The block device that a path is or lies on, and those below it; none for a file system without
/// a device.
#[must_use]
pub fn devices_of(path: &Path) -> Vec<Device> {
    let Ok(meta) = std::fs::metadata(path) else { return Vec::new() };
    let number = if meta.file_type().is_block_device() { meta.rdev() } else { meta.dev() };
    let folder = format!("/sys/dev/block/{}:{}", rustix::fs::major(number), rustix::fs::minor(number));
    let Ok(folder) = std::fs::canonicalize(folder) else { return Vec::new() };
    let mut devices = Vec::new();
    add(&folder, &mut devices);
    devices
}

fn add(folder: &Path, devices: &mut Vec<Device>) {
    let device = describe(folder);
    if devices.iter().any(|it| it.path == device.path) {
        return;
    }
    devices.push(device);
    let below = std::fs::read_dir(folder.join("slaves")).into_iter().flatten().flatten();
    let mut below: Vec<PathBuf> = below.filter_map(|entry| entry.path().canonicalize().ok()).collect();
    below.sort();
    for folder in below {
        add(&folder, devices);
    }
}

fn describe(folder: &Path) -> Device {
    let line = |path: PathBuf| {
        let text = std::fs::read_to_string(path).ok()?;
        let text = text.trim();
        (!text.is_empty()).then(|| text.to_owned())
    };
    // A partition has its disk's queue and name.
    let is_partition = folder.join("partition").exists();
    let disk = if is_partition { folder.parent().unwrap_or(folder) } else { folder };
    let name = folder.file_name().unwrap_or_default().to_string_lossy().replace('!', "/");
    let of_disk = |part: &str| line(disk.join(part));
    let sectors = line(folder.join("size")).and_then(|it| it.parse::<u64>().ok()).unwrap_or(0);
    Device {
        path: format!("/dev/{name}"),
        model: of_disk("device/model"),
        serial: ["device/serial", "device/wwid", "wwid", "dm/uuid"].into_iter().find_map(of_disk),
        size_bytes: sectors * 512,
        scheduler: of_disk("queue/scheduler").map(|it| chosen(&it)),
        rotational: of_disk("queue/rotational").map(|it| it == "1"),
        write_cache: of_disk("queue/write_cache"),
    }
}

/// Returns the word in brackets of `none [mq-deadline] kyber`.
fn chosen(schedulers: &str) -> String {
    let word = schedulers.split_whitespace().find_map(|it| it.strip_prefix('[')?.strip_suffix(']'));
    word.unwrap_or(schedulers).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scheduler_is_the_one_in_brackets() {
        assert_eq!((&*chosen("none [mq-deadline] kyber"), &*chosen("none")), ("mq-deadline", "none"));
    }

    #[test]
    fn the_processor_has_a_name() {
        assert_eq!(cpu("processor\t: 0\nmodel name\t: Xeon 3\nflags\t: a"), "Xeon 3");
        assert_eq!(cpu(""), "unknown");
    }

    #[test]
    fn what_differs_is_named() {
        let here = Environment::here("1.0", Some("fio-3.33"));
        assert!(here.differs(&here).is_empty() && here.memory_bytes > 0 && !here.kernel.is_empty());
        let other = Environment { fio: Some("fio-3.40".to_owned()), ..here.clone() };
        assert_eq!(here.differs(&other), ["fio: fio-3.33 and fio-3.40"]);
    }
}
