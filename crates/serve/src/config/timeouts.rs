// SPDX-License-Identifier: MIT OR Apache-2.0
//! How long a device may take for an I/O before it counts as hanging.

use std::path::Path;
use std::time::Duration;

use super::{Age, Config, ConfigError, Volume};

/// The timeout of cache devices.
///
/// Linux gives a command of an NVMe or SCSI device 30 s, aborts it then, and tries again: 5 s more
/// are for that.
pub const CACHE_TIMEOUT: Duration = Duration::from_secs(35);
/// The timeout of origins.
///
/// No other device has their data, so their clients rather wait than get an error. A disk takes 15
/// s to spin up; SCSI tries three times in 90 s; iSCSI waits 120 s for a connection that was lost.
pub const ORIGIN_TIMEOUT: Duration = Duration::from_secs(120);

/// The shortest timeout. A cache device that hangs counts as failed for good. And devices that are
/// well may take some 100 ms: an SSD that cleans up, or a virtual machine that moves.
pub(super) const TIMEOUT_MIN: Duration = Duration::from_secs(1);

impl Config {
    /// The timeout of the cache device at this path; `None`: for ever.
    #[must_use]
    pub fn timeout_of_cache(&self, path: &Path) -> Option<Duration> {
        let own = if path == self.cache { self.cache_device_timeout } else { self.mirror_device_timeout };
        self.timeout(own, CACHE_TIMEOUT)
    }

    /// The timeout of a mirror that is added; `None`: for ever.
    #[must_use]
    pub fn timeout_of_mirror(&self) -> Option<Duration> {
        self.timeout(self.mirror_device_timeout, CACHE_TIMEOUT)
    }

    /// The timeout of a volume's origin; `None`: for ever.
    #[must_use]
    pub fn timeout_of_origin(&self, volume: &Volume) -> Option<Duration> {
        self.timeout(volume.device_timeout, ORIGIN_TIMEOUT)
    }

    fn timeout(&self, own: Option<Age>, default: Duration) -> Option<Duration> {
        let asked = own.or(self.device_timeout).map_or(default, |age| age.0);
        (!asked.is_zero()).then_some(asked)
    }

    /// Refuses a time in which healthy devices need not answer.
    pub(super) fn check_timeouts(&self) -> Result<(), ConfigError> {
        let own = [self.device_timeout, self.cache_device_timeout, self.mirror_device_timeout];
        let all = own.into_iter().chain(self.volumes.iter().map(|volume| volume.device_timeout));
        match all.flatten().find(|age| !age.0.is_zero() && age.0 < TIMEOUT_MIN) {
            Some(short) => Err(ConfigError::TimeoutShort(short)),
            None => Ok(()),
        }
    }

    /// Sets a time for all devices, whatever they had of their own.
    pub fn set_device_timeout(&mut self, timeout: Age) {
        (self.device_timeout, self.cache_device_timeout, self.mirror_device_timeout) = (Some(timeout), None, None);
        self.volumes.iter_mut().for_each(|volume| volume.device_timeout = None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_device_has_its_own_time_or_that_of_all_or_the_default() {
        let text = "cache = \"/c\"\nmirror = \"/m\"\n";
        let volumes = "[[volume]]\nname = \"a\"\norigin = \"/a\"\n[[volume]]\nname = \"b\"\norigin = \"/b\"\ndevice_timeout = \"1h\"\n";
        let read = |more: &str| toml::from_str::<Config>(&format!("{text}{more}{volumes}")).unwrap();
        let all = |config: &Config| {
            let [cache, mirror] = ["/c", "/m"].map(|path| config.timeout_of_cache(Path::new(path)));
            let [a, b] = [0, 1].map(|at| config.timeout_of_origin(&config.volumes[at]));
            [cache, mirror, a, b].map(|timeout| timeout.map(|it| it.as_secs()))
        };
        assert_eq!(all(&read("")), [Some(35), Some(35), Some(120), Some(3600)]);
        assert_eq!(all(&read("device_timeout = \"7s\"\n")), [Some(7), Some(7), Some(7), Some(3600)]);
        assert_eq!(all(&read("cache_device_timeout = \"0s\"\n")), [None, Some(35), Some(120), Some(3600)]);
        let mut config = read("mirror_device_timeout = \"9s\"\n");
        assert_eq!(all(&config), [Some(35), Some(9), Some(120), Some(3600)]);
        config.set_device_timeout("2s".parse().unwrap());
        assert_eq!(all(&config), [Some(2); 4]);
        config.set_device_timeout("0s".parse().unwrap());
        assert_eq!(all(&config), [None; 4]);
    }

    #[test]
    fn a_time_in_which_healthy_devices_need_not_answer_is_refused() {
        let read = |text: &str| toml::from_str::<Config>(&format!("cache = \"/c\"\n{text}")).unwrap().check_timeouts();
        for short in ["1us", "1ms", "999ms"] {
            for key in [
                "device_timeout",
                "cache_device_timeout",
                "mirror_device_timeout",
                "[[volume]]\norigin = \"/a\"\ndevice_timeout",
            ] {
                let said = read(&format!("{key} = \"{short}\"\n")).unwrap_err().to_string();
                assert!(said.contains(short), "{said}");
            }
        }
        for long in ["0s", "1s", "35s"] {
            read(&format!("device_timeout = \"{long}\"\n")).unwrap();
        }
    }
}
