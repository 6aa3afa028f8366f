// SPDX-License-Identifier: MIT OR Apache-2.0
//! The devices that a trace is played to: models by their names, or devices of this machine.
//!
//! A device of this machine is read for a while to find the nearest model and by how much it is
//! slower. Nothing is written to it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use clap::Args;
use flashfront_device::pace::{self, Measured, Nearest, PHASES, Progress, nearest};
use flashfront_device::sim::{Known, known};
use flashfront_serve::config::Age;

use crate::progress::LOOK_EVERY;
use crate::usage::misused;
use crate::{human, progress};

/// The disk if no other is named.
const ORIGIN: &str = "wd-re-4tb";
/// The least time of a probe: then each phase has some reads of a disk.
const PROBE_MIN: Duration = Duration::from_millis(500);
/// If the nearest model is off by this factor or more, no model is like the device.
const UNLIKE: f64 = 1.5;

#[derive(Debug, Args)]
pub(crate) struct DeviceArgs {
    /// The disk that the trace is played to: the name of a model (docs/laboratory/models.md), or a
    /// path with a slash. The path is a block device or file of this machine. It is probed: its
    /// reads are measured, and nothing is written to it [default: the recorded device, or
    /// wd-re-4tb].
    #[arg(long, value_name = "DEVICE", value_parser = named)]
    origin: Option<Named>,
    /// The cache device: a model or a path, likewise.
    #[arg(long, value_name = "DEVICE", default_value = "samsung-850-pro", value_parser = named)]
    cache: Named,
    /// How long each device is probed. Shorter times find too few of a disk's slow reads.
    #[arg(long, value_name = "TIME", default_value = "20s")]
    probe_for: Age,
}

/// A device on the command line.
#[derive(Clone, Debug)]
enum Named {
    Model(Known),
    Path(PathBuf),
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Model(known) => f.write_str(known.name),
            Self::Path(path) => path.display().fmt(f),
        }
    }
}

fn named(text: &str) -> Result<Named, String> {
    if text.contains('/') {
        return Ok(Named::Path(text.into()));
    }
    let found = known().into_iter().find(|it| it.name == text).map(Named::Model);
    found.ok_or_else(|| {
        let names: Vec<_> = known().into_iter().map(|it| it.name).collect();
        format!("neither a model ({}) nor a path with a slash", names.join(", "))
    })
}

/// A device that was probed.
#[derive(Debug)]
pub(crate) struct Probe {
    pub(crate) path: PathBuf,
    pub(crate) measured: Measured,
    pub(crate) nearest: Nearest,
}

/// The devices of a question.
#[derive(Debug)]
pub(crate) struct Devices {
    pub(crate) origin: Known,
    pub(crate) cache: Known,
    /// The probe by which the origin was found, unless a model was named.
    pub(crate) probe: Option<Probe>,
    pub(crate) cache_probe: Option<Probe>,
}

impl DeviceArgs {
    /// The options as on a command line.
    pub(super) fn words(&self) -> Vec<String> {
        let origin = self.origin.as_ref().map_or_else(|| ORIGIN.to_owned(), Named::to_string);
        vec![format!("--origin {origin}"), format!("--cache {}", self.cache)]
    }

    /// Finds the devices; `recorded` is where the trace was recorded, if that is here and now.
    pub(super) fn find(&self, recorded: Option<&Path>, stop: &AtomicBool) -> anyhow::Result<Devices> {
        if self.probe_for.0 < PROBE_MIN {
            misused!("--probe-for: {}; a probe takes 500ms or more", self.probe_for);
        }
        let origin = self.origin.clone().or_else(|| recorded.map(|path| Named::Path(path.to_owned())));
        let origin = origin.unwrap_or_else(|| named(ORIGIN).expect("the default is one of them"));
        let (origin, probe) = self.device(&origin, stop)?;
        let (cache, cache_probe) = self.device(&self.cache, stop)?;
        Ok(Devices { origin, cache, probe, cache_probe })
    }

    fn device(&self, named: &Named, stop: &AtomicBool) -> anyhow::Result<(Known, Option<Probe>)> {
        match named {
            Named::Model(known) => Ok((*known, None)),
            Named::Path(path) => {
                let measured = watched(path, self.probe_for.0, stop)?;
                let nearest = nearest(&measured.times, measured.hints.write_cache);
                let probe = Probe { path: path.clone(), measured, nearest };
                probe.warn();
                Ok((probe.nearest.device(probe.measured.device_bytes), Some(probe)))
            }
        }
    }
}

/// Measures a device while a bar shows how far it is.
fn watched(path: &Path, time: Duration, stop: &AtomicBool) -> anyhow::Result<Measured> {
    let progress = Progress::default();
    let (done, ended) = channel::<()>();
    let measured = thread::scope(|scope| {
        scope.spawn(|| {
            let ended = ended;
            let bar = progress::of_share("probing (only reads)", time.as_millis() as u64);
            while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(LOOK_EVERY) {
                bar.set_position(progress.done_ms.load(Ordering::Relaxed));
            }
            bar.finish_and_clear();
        });
        let measured = pace::measure(path, time, &progress, stop);
        drop(done);
        measured
    });
    Ok(measured?)
}

impl Probe {
    /// Warns if the probe's times are worth less.
    fn warn(&self) {
        let path = human::quoted(&self.path);
        if self.measured.was_busy() {
            tracing::warn!(
                "{path}: busy: {} requests of others beside {} of the probe, so that its times are too long; probe it when it is idle",
                human::count(self.measured.others.unwrap_or(0)),
                human::count(self.measured.ours)
            );
        }
        if self.nearest.off >= UNLIKE {
            tracing::warn!(
                "{path}: like none of the models; the nearest, {}, is off by a factor of {:.1} in the mean, so that times are rough",
                self.nearest.known.name,
                self.nearest.off
            );
        }
    }

    /// Tells the result in a sentence.
    pub(crate) fn told(&self) -> String {
        let Nearest { known, scale, off } = &self.nearest;
        let times = PHASES.iter().zip(self.measured.times.0);
        let times: Vec<_> = times.map(|(phase, ns)| format!("{} {}", phase.about, human::latency(ns as u64))).collect();
        format!(
            "Probe: {} reads like {}, but takes {scale:.2} times as long (within {:.0} %). A read takes: {}.",
            human::quoted(&self.path),
            known.name,
            (off - 1.0) * 100.0,
            times.join("; ")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_a_model_or_a_path() {
        assert!(matches!(named("wd-re-4tb"), Ok(Named::Model(it)) if it.name == "wd-re-4tb"));
        assert!(matches!(named("./disk"), Ok(Named::Path(_))));
        let refused = named("a-disk").unwrap_err();
        assert!(refused.contains("wd-re-4tb") && refused.contains("intel-p4500"), "{refused}");
        assert!(matches!(named(ORIGIN), Ok(Named::Model(_))), "the default is one of them");
    }
}
