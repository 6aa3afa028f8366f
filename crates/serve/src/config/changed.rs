// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds the changed keys of a configuration that only the next start takes.

use super::{Config, Policy, Volume};

impl Config {
    /// Lists the keys that differ from `next` and that a running daemon can't take over, as they
    /// are written.
    ///
    /// Every field is named here, so that a new one can't be forgotten. Fields that are flags only,
    /// and fields that a reload takes over, have no line below.
    pub(crate) fn changed_until_restart(&self, next: &Self) -> Vec<&'static str> {
        let Self {
            cache,
            mirror,
            disposable_cache,
            without_mirror: _,
            device_timeout,
            cache_device_timeout,
            mirror_device_timeout,
            control,
            state,
            map_file,
            map_file_bytes,
            http,
            insecure,
            tls,
            buffer_bytes,
            ram_front_bytes,
            huge_pages,
            threads,
            lane_threads,
            log_level: _,
            accept_changed_origin: _,
            take_over: _,
            without_cache: _,
            accept_missing_dirty_data: _,
            volumes: _,
            detached: _,
            moved_from: _,
            listeners,
            policy,
        } = self;
        let Policy {
            name,
            flash_writes_per_day,
            dirty_limit: _,
            sequential_bypass: _,
            read_around,
            durability,
            max_dirty_age,
            destage: _,
        } = policy;
        // Volumes that come, and modes, are taken over. A volume that is not named stays.
        let other = |volume: &Volume| {
            let running = self.volumes.iter().find(|running| running.name == volume.name);
            running.is_some_and(|it| (&it.origin, &it.device_timeout) != (&volume.origin, &volume.device_timeout))
        };
        let keys = [
            ("cache", *cache != next.cache),
            ("mirror", *mirror != next.mirror),
            ("disposable_cache", *disposable_cache != next.disposable_cache),
            ("control", *control != next.control),
            ("state", *state != next.state),
            ("map_file", *map_file != next.map_file),
            ("map_file_bytes", *map_file_bytes != next.map_file_bytes),
            ("http", *http != next.http),
            ("insecure", *insecure != next.insecure),
            ("[tls]", tls.is_some() != next.tls.is_some()),
            ("buffer_bytes", *buffer_bytes != next.buffer_bytes),
            ("ram_front_bytes", *ram_front_bytes != next.ram_front_bytes),
            ("huge_pages", *huge_pages != next.huge_pages),
            ("threads", *threads != next.threads),
            ("lane_threads", *lane_threads != next.lane_threads),
            ("device_timeout", *device_timeout != next.device_timeout),
            ("cache_device_timeout", *cache_device_timeout != next.cache_device_timeout),
            ("mirror_device_timeout", *mirror_device_timeout != next.mirror_device_timeout),
            ("[[volume]] origin or device_timeout", next.volumes.iter().any(other)),
            ("[[listen]]", *listeners != next.listeners),
            ("[policy] name", *name != next.policy.name),
            ("[policy] flash_writes_per_day", *flash_writes_per_day != next.policy.flash_writes_per_day),
            ("[policy] read_around", *read_around != next.policy.read_around),
            ("[policy] durability", *durability != next.policy.durability),
            ("[policy] destage", self.destage() != next.with_volumes(&self.volumes).destage()),
            ("[policy] max_dirty_age", *max_dirty_age != next.policy.max_dirty_age),
        ];
        keys.into_iter().filter(|(_, changed)| *changed).map(|(key, _)| key).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{DirtyLimit, REFERENCE, Size, TlsFiles};

    fn reference() -> Config {
        toml::from_str(REFERENCE).unwrap()
    }

    #[test]
    fn what_only_a_start_takes_is_named_by_its_key() {
        let (running, mut next) = (reference(), reference());
        assert_eq!(running.changed_until_restart(&next), [""; 0]);
        next.policy.dirty_limit = DirtyLimit::Percent(20);
        next.policy.sequential_bypass = Size(0);
        next.volumes[0].mode = None;
        assert_eq!(running.changed_until_restart(&next), [""; 0], "a reload takes these");
        next.threads = 4;
        next.policy.read_around = Size(0);
        next.volumes[0].origin = "/elsewhere".into();
        next.tls = Some(TlsFiles { certificates: "/pki".into(), verify_peer: true });
        let named = running.changed_until_restart(&next);
        assert_eq!(named, ["[tls]", "threads", "[[volume]] origin or device_timeout", "[policy] read_around"]);
        let (running, mut next) = (next.clone(), next);
        next.tls = Some(TlsFiles { certificates: "/new".into(), verify_peer: false });
        assert_eq!(running.changed_until_restart(&next), [""; 0], "other files are read by a reload");
    }
}
