// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether this program can go on with what a running daemon has, before anything is touched.

use std::borrow::Cow;

use flashfront_engine::format;

use super::error::{OriginsError, ServeError};
use super::open::unknown_policy;
use super::resolve;
use crate::config::{Config, Listener};
use crate::frontend::nbd::Tls;
use crate::upgrade::{HAND_OVER, HAND_OVER_WITHOUT_TLS, Offer, version};

/// What a daemon with this configuration offers.
pub(super) fn offer(config: &Config, format: Option<u32>) -> Offer {
    Offer {
        hand_over: HAND_OVER,
        version: version(),
        format,
        cache: config.cache.clone(),
        mirror: config.mirror.clone(),
        moved_from: config.moved_from.clone(),
        control: config.control.clone(),
        listeners: config.listeners.iter().map(told).collect(),
        http: config.http.map(|address| address.to_string()),
        tls: config.tls.is_some(),
        volumes: if config.without_cache { config.volumes.iter().map(volume).collect() } else { Vec::new() },
        known: Vec::new(),
    }
}

/// Judges an offer by the configuration that this program would serve by. Returns why the program
/// can't go on with what there is, if it can't. If the cache has moved since the daemon was started
/// in the same words, the configuration follows.
pub(super) fn judge(offered: &Offer, config: &mut Cow<'_, Config>) -> Option<String> {
    if offered.moved_from.as_ref() == Some(&config.cache) {
        config.to_mut().move_to(offered.cache.clone(), offered.mirror.clone());
    }
    let config: &Config = config;
    let unknown = resolve::unknown(&config.volumes, &offered.known).map(|name| OriginsError::NoSuchVolume {
        cache: config.cache.clone(),
        name: name.to_owned(),
        known: offered.known.join(", "),
    });
    let unfit = || unknown.map(|error| error.to_string()).or_else(|| unfit(config).map(|error| error.to_string()));
    refusal(offered, config).or_else(unfit)
}

fn refusal(offered: &Offer, config: &Config) -> Option<String> {
    let newest = format::VERSION;
    let theirs = offered.hand_over;
    if ![HAND_OVER_WITHOUT_TLS, HAND_OVER].contains(&theirs) {
        return Some(format!(
            "it takes over by version {HAND_OVER} of the hand-over, and the daemon hands over by version {theirs}"
        ));
    }
    if let Some(version) = offered.format.filter(|version| *version > newest) {
        return Some(format!("the cache has format version {version}, and it knows versions up to {newest}"));
    }
    let own = offer(config, offered.format);
    let keys = [
        (format!("cache ({}, not {})", own.cache.display(), offered.cache.display()), offered.cache != own.cache),
        ("control".to_owned(), offered.control != own.control),
        ("http".to_owned(), offered.http != own.http),
        ("[[listen]]".to_owned(), offered.listeners != own.listeners),
        ("[tls]".to_owned(), offered.tls != own.tls),
        ("[[volume]]".to_owned(), offered.volumes != own.volumes),
    ];
    let changed: Vec<String> = keys.into_iter().filter(|(_, changed)| *changed).map(|(key, _)| key).collect();
    let told = changed.join(", ");
    (!changed.is_empty())
        .then(|| format!("its configuration differs from the daemon's, and clients would be lost: {told}"))
}

/// What else a start would refuse, as far as it can be known while another daemon has the devices.
fn unfit(config: &Config) -> Option<ServeError> {
    if let Err(error) = config.check() {
        return Some(error.into());
    }
    let load = |files: &crate::config::TlsFiles| Tls::load(&files.certificates, files.verify_peer);
    if let Some(Err(error)) = config.tls.as_ref().map(load) {
        return Some(error.into());
    }
    unknown_policy(&config.policy.name)
}

/// A volume and its origin.
fn volume(volume: &crate::config::Volume) -> String {
    format!("{} {}", volume.name, volume.origin.display())
}

/// A listener in words that stay the same from version to version.
fn told(listener: &Listener) -> String {
    match listener {
        Listener::Nbd(at) => format!("nbd {at}"),
        Listener::VhostUserBlk { path, volume } => {
            format!("vhost-user-blk {} {}", path.display(), volume.as_deref().unwrap_or("*"))
        }
        Listener::Fuse(folder) => format!("fuse {}", folder.display()),
        Listener::Ublk(first) => format!("ublk {first}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::Listen;
    use crate::config::Volume;

    fn config() -> Config {
        let mut config = Config::new("/cache".into());
        config.volumes.push(Volume::new("data", "/origin".into()));
        config.listeners.push(Listener::Nbd(Listen::Unix("/nbd".into())));
        config
    }

    #[test]
    fn a_program_that_would_lose_clients_says_so_before() {
        let running = config();
        let offered = offer(&running, Some(2));
        let judge = |offered: &Offer, config: &Config| judge(offered, &mut Cow::Borrowed(config));
        assert_eq!(judge(&offered, &running), None);
        let mut next = config();
        next.listeners[0] = Listener::Nbd(Listen::Unix("/other".into()));
        next.control = "/elsewhere".into();
        let said = judge(&offered, &next).unwrap();
        assert!(said.contains("[[listen]]") && said.contains("control"), "{said}");
        let mut next = config();
        next.policy.name = "best".to_owned();
        assert!(judge(&offered, &next).unwrap().contains("no policy is named `best`"));
    }

    #[test]
    fn a_volume_that_the_cache_does_not_have_is_seen_before_anything_is_closed() {
        let running = config();
        let judged = |known: &[&str]| {
            let known = known.iter().map(|name| (*name).to_owned()).collect();
            judge(&Offer { known, ..offer(&running, Some(2)) }, &mut Cow::Borrowed(&running))
        };
        assert_eq!(judged(&[]), None, "a cache that does not know");
        assert_eq!((judged(&["data", "home"]), judged(&["root"])), (None, None));
        let said = judged(&["root", "home"]).unwrap();
        assert!(said.contains("no volume `data`") && said.contains("root, home"), "{said}");
    }

    #[test]
    fn a_program_that_is_started_in_the_same_words_follows_a_cache_that_has_moved() {
        let (mut running, started) = (config(), config());
        running.move_to("/new".into(), Some("/other".into()));
        running.move_to("/newest".into(), None);
        let mut next = Cow::Borrowed(&started);
        assert_eq!(judge(&offer(&running, Some(2)), &mut next), None);
        assert_eq!((next.cache.to_str(), &next.mirror), (Some("/newest"), &None));
        let other = Config { cache: "/elsewhere".into(), ..config() };
        let said = judge(&offer(&running, Some(2)), &mut Cow::Borrowed(&other)).unwrap();
        assert!(said.contains("cache (/elsewhere, not /newest)"), "{said}");
    }

    #[test]
    fn a_newer_format_and_another_hand_over_are_refused() {
        let running = config();
        let judge = |offered: &Offer, config: &Config| judge(offered, &mut Cow::Borrowed(config));
        let said = judge(&offer(&running, Some(99)), &running).unwrap();
        assert!(said.contains("format version 99"), "{said}");
        let by = |hand_over: u32| judge(&Offer { hand_over, ..offer(&running, None) }, &running);
        for other in [HAND_OVER_WITHOUT_TLS - 1, HAND_OVER + 1] {
            assert!(by(other).unwrap().contains(&format!("hands over by version {other}")));
        }
        assert_eq!((by(HAND_OVER_WITHOUT_TLS), by(HAND_OVER)), (None, None));
    }
}
