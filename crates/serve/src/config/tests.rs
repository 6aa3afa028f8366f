// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of what a config accepts and refuses, and of what it says then.

use super::*;
use crate::address::Listen;

const LEAST: &str = "cache = \"/c\"\n[[volume]]\nname = \"v\"\norigin = \"/o\"\n[[listen]]\nnbd = \"unix:/s\"\n";

fn parse(text: &str) -> Result<Config, toml::de::Error> {
    toml::from_str(text)
}

#[test]
fn the_reference_shows_the_defaults() {
    let config = parse(REFERENCE).unwrap();
    assert_eq!(config.policy, Policy::default());
    assert_eq!(config.buffer_bytes, None);
    assert!(!config.insecure);
    config.check().unwrap();
    for key in ["name = \"gated\"", "control", "http", "[tls]", "certificates", "verify_peer"] {
        assert!(REFERENCE.contains(key), "{key} is not documented");
    }
}

#[test]
fn a_control_socket_is_a_path_or_unix_and_a_path() {
    for said in ["/r/s", "unix:/r/s"] {
        assert_eq!(parse(&format!("control = \"{said}\"\n{LEAST}")).unwrap().control, Path::new("/r/s"));
        assert_eq!(control_said(Path::new(said)), Path::new("/r/s"));
    }
}

#[test]
fn the_least_config_is_enough() {
    let config = parse(LEAST).unwrap();
    config.check().unwrap();
    assert_eq!(config.volumes[0].mode, None);
    assert_eq!(config.policy, Policy::default());
}

/// A file may leave out keys that flags give or have a default for.
#[test]
fn a_file_may_leave_the_cache_to_a_flag_and_the_name_to_its_default() {
    let text = LEAST.replace("cache = \"/c\"\n", "").replace("name = \"v\"\n", "");
    let mut config = parse(&text).unwrap();
    assert_eq!(config.volumes[0].name, "data");
    config.cache = "/c".into();
    config.check().unwrap();
}

#[test]
fn an_unknown_key_is_refused_with_its_line() {
    for text in [
        format!("cachee = \"x\"\n{LEAST}"),
        format!("{LEAST}[policy]\ndirty_limt = \"50%\"\n"),
        format!("{LEAST}nbdd = \"x\"\n"),
        format!("accept_changed_origin = true\n{LEAST}"),
    ] {
        let message = parse(&text).unwrap_err().to_string();
        assert!(message.contains("unknown field"), "{message}");
        assert!(message.contains("TOML parse error at line") && message.contains('^'), "{message}");
    }
}

#[test]
fn a_bad_value_is_refused_with_what_would_do() {
    for (line, hint) in [
        ("dirty_limit = \"0%\"", "1% to 100%"),
        ("dirty_limit = \"101%\"", "1% to 100%"),
        ("dirty_limit = \"many\"", "50%"),
        ("sequential_bypass = \"4 XiB\"", "512 KiB"),
        ("sequential_bypass = \"-4 KiB\"", "512 KiB"),
        ("sequential_bypass = 4096", "string"),
        ("durability = \"never\"", "flush, always"),
        ("max_dirty_age = \"soon\"", "30s"),
    ] {
        let message = parse(&format!("{LEAST}[policy]\n{line}\n")).unwrap_err().to_string();
        assert!(message.contains(hint), "{line}: {message}");
    }
    let mode = LEAST.replace("origin = \"/o\"", "origin = \"/o\"\nmode = \"fast\"");
    assert!(parse(&mode).unwrap_err().to_string().contains("writeback, writethrough"));
}

#[test]
fn values_are_checked_against_each_other() {
    let with = |change: &dyn Fn(&mut Config)| {
        let mut config = parse(LEAST).unwrap();
        change(&mut config);
        config.check().unwrap_err().to_string()
    };
    assert!(with(&|c| c.cache = PathBuf::new()).contains("--cache"));
    let alone = |c: &mut Config| {
        c.volumes.clear();
        (c.without_cache, c.accept_missing_dirty_data) = (true, true);
    };
    assert!(with(&alone).contains("--origin"));
    assert!(with(&|c| c.listeners.clear()).contains("--nbd"));
    assert!(with(&|c| c.control = "/s".into()).contains("/s is given for two sockets"));
    assert!(with(&|c| c.listeners.push(c.listeners[0].clone())).contains("/s is given for two sockets"));
    assert!(with(&|c| c.volumes.push(c.volumes[0].clone())).contains("two volumes"));
    assert!(with(&|c| c.volumes[0].origin = c.cache.clone()).contains("two devices"));
    assert!(with(&|c| c.volumes[0].name = "a/b".to_owned()).contains("can't be used"));
    assert!(with(&|c| c.policy.read_around = Size(6000)).contains("multiple of 4 KiB"));
    assert!(with(&|c| c.policy.read_around = Size(1 << 20)).contains("1 MiB; it must be"));
    assert!(with(&|c| c.buffer_bytes = Some(Size(1 << 20))).contains("124 MiB"));
    assert!(with(&|c| c.map_file_bytes = Size(1 << 20)).contains("take at least 16 MiB, or 0"));
    assert!(with(&|c| c.http = Some(([0, 0, 0, 0], 80).into())).contains("--insecure"));
    let beyond = with(&|c| c.listeners[0] = Listener::Nbd(Listen::parse("tcp:0.0.0.0:1").unwrap()));
    assert!(beyond.contains("--insecure") && beyond.contains("--tls-certificates"), "{beyond}");
}

#[test]
fn loopback_needs_no_permission_and_insecure_gives_it() {
    let mut config = parse(LEAST).unwrap();
    config.http = Some(([127, 0, 0, 1], 80).into());
    config.listeners[0] = Listener::Nbd(Listen::parse("tcp:[::1]:10809").unwrap());
    config.check().unwrap();
    config.listeners[0] = Listener::Nbd(Listen::parse("tcp:0.0.0.0:10809").unwrap());
    config.insecure = true;
    config.check().unwrap();
}

#[test]
fn a_front_end_has_a_table_of_its_own() {
    let fuse = LEAST.replace("nbd = \"unix:/s\"", "fuse = \"/run/disk\"");
    let mut config = parse(&fuse).unwrap();
    config.check().unwrap();
    assert_eq!(config.listeners, [Listener::Fuse("/run/disk".into())]);
    for both in [format!("{LEAST}fuse = \"/run/disk\"\n"), fuse.replace("fuse = \"/run/disk\"", "")] {
        let message = parse(&both).unwrap_err().to_string();
        assert!(message.contains("one of the keys nbd, vhost_user_blk, fuse and ublk"), "{message}");
    }
    let ublk = parse(&LEAST.replace("nbd = \"unix:/s\"", "ublk = 3")).unwrap();
    assert_eq!(ublk.listeners, [Listener::Ublk(3)]);
    // No file can have this name; an NBD export can.
    config.volumes[0].name = "..".to_owned();
    assert!(config.check_volumes().unwrap_err().to_string().contains("--fuse"));
    config.listeners = parse(LEAST).unwrap().listeners;
    config.check_volumes().unwrap();
}

#[test]
fn tls_opens_nbd_to_other_machines_and_nothing_else() {
    let mut config = parse(&format!("{LEAST}[tls]\ncertificates = \"/pki\"\n")).unwrap();
    assert_eq!(config.tls, Some(TlsFiles { certificates: "/pki".into(), verify_peer: false }));
    config.listeners[0] = Listener::Nbd(Listen::parse("tcp:0.0.0.0:10809").unwrap());
    config.check().unwrap();
    config.http = Some(([0, 0, 0, 0], 80).into());
    assert!(config.check().unwrap_err().to_string().contains("http 0.0.0.0:80"));
    assert!(parse(&format!("{LEAST}[tls]\nverify_peer = true\n")).unwrap_err().to_string().contains("certificates"));
    // The reference's own lines, with their marks taken off.
    let text = REFERENCE.replace("# [tls]", "[tls]").replace("# certificates", "certificates");
    let config = parse(&text.replace("# verify_peer", "verify_peer")).unwrap();
    assert!(!config.tls.unwrap().verify_peer);
}

#[test]
fn a_missing_file_is_named() {
    let error = Config::read(Path::new("/nowhere/f.toml")).unwrap_err().to_string();
    assert!(error.contains("/nowhere/f.toml"), "{error}");
}

#[test]
fn sizes_are_read_as_people_write_them() {
    for (text, bytes) in [
        ("4096", 4096),
        ("512 KiB", 512 << 10),
        ("4M", 4 << 20),
        ("4 m", 4 << 20),
        ("2G", 2 << 30),
        ("1.5 GiB", 3 << 29),
        ("4 MB", 4_000_000),
        ("0 B", 0),
    ] {
        assert_eq!(text.parse::<Size>().unwrap(), Size(bytes), "{text}");
    }
    for text in ["", " ", "MiB", "-1", "4 QiB", "1x", "four", "8 EiB", "99999999999999999999T", "1e400"] {
        assert!(text.parse::<Size>().is_err(), "{text}");
    }
}

#[test]
fn values_print_as_they_are_read() {
    for text in ["4 MiB", "1 TiB", "0 B", "1537 KiB", "513 B"] {
        assert_eq!(text.parse::<Size>().unwrap().to_string(), text);
    }
    for text in ["none", "200 GiB", "0.5 DWPD"] {
        assert_eq!(text.parse::<FlashBudget>().unwrap().to_string(), text);
    }
    assert_eq!("2dwpd".parse::<FlashBudget>().unwrap().bytes(1000), Some(2000));
    for text in ["", "0", "0 DWPD", "-1 DWPD", "nan DWPD", "inf DWPD", "DWPD", "much"] {
        assert!(text.parse::<FlashBudget>().is_err(), "{text}");
    }
    assert_eq!("50 %".parse::<DirtyLimit>().unwrap().to_string(), "50%");
    assert_eq!("300s".parse::<Age>().unwrap().to_string(), "5m");
    assert_eq!("5m".parse::<Age>().unwrap(), "5min".parse::<Age>().unwrap());
}

#[test]
fn a_dirty_limit_is_never_zero_and_never_more_than_the_cache() {
    assert_eq!(DirtyLimit::Percent(50).blocks(1000), 500);
    assert_eq!(DirtyLimit::Percent(1).blocks(10), 1);
    assert_eq!(DirtyLimit::Size(Size(1 << 30)).blocks(1000), 1000);
    assert_eq!(DirtyLimit::Percent(100).blocks(u64::MAX), u64::MAX);
}

#[test]
fn an_address_of_metrics_is_an_ip_address_with_a_port() {
    assert_eq!(parse(&format!("http = \"[::1]:9809\"\n{LEAST}")).unwrap().http, "[::1]:9809".parse().ok());
    for bad in ["localhost:9809", "127.0.0.1", ":9809", "9809"] {
        let message = parse(&format!("http = \"{bad}\"\n{LEAST}")).unwrap_err().to_string();
        assert!(message.contains("an IP address with a port, such as 127.0.0.1:9809"), "{message}");
    }
}

#[test]
fn a_socket_of_a_virtual_machine_has_one_volume() {
    let with = |lines: &str| parse(&format!("{LEAST}[[listen]]\n{lines}\n"));
    let config = with("vhost_user_blk = \"unix:/g\"").unwrap();
    let place = |volume: Option<&str>| Listener::VhostUserBlk { path: "/g".into(), volume: volume.map(str::to_owned) };
    assert_eq!(config.listeners.last(), Some(&place(None)));
    config.check().unwrap();
    for (lines, hint) in [
        ("vhost_user_blk = \"tcp:127.0.0.1:1\"", "unix:PATH"),
        ("vhost_user_blk = \"/g\"", "unix:PATH"),
        ("volume = \"data\"", "vhost_user_blk"),
        ("nbd = \"unix:/n\"\nvolume = \"data\"", "by its name"),
        ("nbd = \"unix:/n\"\nvhost_user_blk = \"unix:/g\"", "of its own"),
    ] {
        let message = with(lines).unwrap_err().to_string();
        assert!(message.contains(hint), "{lines}: {message}");
    }
    let unknown = with("vhost_user_blk = \"unix:/g\"\nvolume = \"other\"").unwrap();
    assert!(unknown.check_volumes().unwrap_err().to_string().contains("no [[volume]] has that name"));
    let mut several = config;
    several.volumes.push(Volume::new("more", "/p".into()));
    assert!(several.check_volumes().unwrap_err().to_string().contains("say which"));
    *several.listeners.last_mut().unwrap() = place(Some("more"));
    several.check_volumes().unwrap();
    let each = Listener::vhost_user_blk("unix:/run/{volume}.sock", None).unwrap();
    *several.listeners.last_mut().unwrap() = each;
    several.check_volumes().unwrap();
    assert_eq!(Listener::socket_of(Path::new("/run/{volume}.sock"), "more"), Path::new("/run/more.sock"));
}

#[test]
fn sockets_of_services_are_found() {
    let dir = tempfile::tempdir().unwrap();
    let found = || super::control_paths_of_services(dir.path());
    assert!(found().is_empty());
    let mut listeners = Vec::new();
    for path in ["flashfront/b/control.sock", "flashfront/a/control.sock", "flashfront.sock"] {
        let path = dir.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        listeners.push(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert_eq!(super::only(&found()).is_some(), listeners.len() == 1, "one alone is the one that is meant");
    }
    let names = ["flashfront/a/control.sock", "flashfront/b/control.sock", "flashfront.sock"];
    assert_eq!(found(), names.map(|name| dir.path().join(name)));
    // Their daemons were killed.
    drop(listeners);
    assert!(found().is_empty());
}
