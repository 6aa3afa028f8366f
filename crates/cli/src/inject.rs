// SPDX-License-Identifier: MIT OR Apache-2.0
//! `serve --inject DEVICE:FAULTS`: faults ordered for the daemon's devices, so that operators see
//! their alarms ring before they need them.
//!
//! Off unless asked for, and said aloud at the start. The superblock is read before and written
//! past the faults; replay goes through them.

use std::str::FromStr;

use flashfront_device::Device;
use flashfront_device::wrap::{Faults, Inject};
use flashfront_serve::daemon::{Hooks, Wrap};

use crate::usage::misused;

/// The daemon's devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    Cache,
    Mirror,
    Origins,
}

/// Faults for a device.
#[derive(Clone, Debug)]
pub(crate) struct Injection {
    which: Which,
    faults: Faults,
    text: String,
}

impl FromStr for Injection {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "write cache:FAULTS, mirror:FAULTS or origin:FAULTS, as in cache:eio,op=read,p=0.001".to_owned();
        let (device, faults) = text.split_once(':').ok_or_else(wrong)?;
        let which = match device {
            "cache" => Which::Cache,
            "mirror" => Which::Mirror,
            "origin" => Which::Origins,
            _ => return Err(wrong()),
        };
        let faults = faults.parse().map_err(|error| format!("{error}"))?;
        Ok(Self { which, faults, text: text.to_owned() })
    }
}

impl Injection {
    /// Whether it is a cache device that is to be faulty.
    pub(crate) fn is_for_cache(&self) -> bool {
        self.which != Which::Origins
    }
}

/// Refuses a second one for a device: only one of them would count.
pub(crate) fn check(injections: &[Injection]) -> anyhow::Result<()> {
    for (at, it) in injections.iter().enumerate() {
        if let Some(first) = injections[..at].iter().find(|first| first.which == it.which) {
            let (device, more) = it.text.split_once(':').unwrap_or_default();
            misused!(
                "--inject is given twice for {device}; join the faults with `;`, as in --inject \"{};{more}\"",
                first.text
            );
        }
    }
    Ok(())
}

/// Puts the faults around the devices, and says so.
pub(crate) fn arm(injections: Vec<Injection>, hooks: &mut Hooks) {
    for Injection { which, faults, text } in injections {
        tracing::warn!(
            "FAULTS ARE INJECTED (--inject {text}): clients will see errors, and data may be destroyed; never do this to data you need"
        );
        let wrap: Wrap = Box::new(move |device| -> Box<dyn Device> { Box::new(Inject::new(device, faults.clone())) });
        match which {
            Which::Cache => hooks.wrap_cache = Some(wrap),
            Which::Mirror => hooks.wrap_mirror = Some(wrap),
            Which::Origins => hooks.wrap_origin = Some(wrap),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_for_one_device_are_refused() {
        let read = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<Injection>>();
        assert!(check(&read(&["cache:eio", "mirror:eio", "origin:eio"])).is_ok());
        let said = check(&read(&["cache:eio,p=0.1", "origin:gone", "cache:gone"])).unwrap_err().to_string();
        assert!(said.contains("cache:eio,p=0.1;gone"), "{said}");
    }

    #[test]
    fn devices_and_faults_are_read() {
        let it: Injection = "origin:seed=3;gone,after=100,for=30s".parse().unwrap();
        assert!(it.which == Which::Origins && it.faults.ordered());
        for (text, says) in [
            ("eio", "cache:FAULTS"),
            ("floppy:eio", "cache:FAULTS"),
            ("cache:fire", "`fire` is no fault"),
            ("cache:eio,p=7", "from 0.000001 to 1"),
        ] {
            assert!(text.parse::<Injection>().unwrap_err().contains(says), "{text}");
        }
    }
}
