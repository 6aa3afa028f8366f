// SPDX-License-Identifier: MIT OR Apache-2.0
//! `flashfront serve`: the daemon, in the foreground.
//!
//! Its options come from flags, from a TOML file, or from a file whose values flags override. The
//! daemon does not fork: the service manager (or the shell) keeps it. `ready URI` on stdout is the
//! sign that clients may connect, as is READY=1 for systemd ([`service`]). SIGTERM and SIGINT stop
//! it ([`stopping`]).

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use flashfront_device::sim::Known;
use flashfront_engine::{Destage, Durability, Mode};
use flashfront_serve::config::{
    self, Age, Config, DirtyLimit, Disposable, FlashBudget, Listener, LogLevel, Size, TlsFiles, Volume, control_said,
    http_address,
};
use flashfront_serve::daemon::{self, Ended, FrontHandle, Hooks, Left, Reload};
use flashfront_serve::frontend::nbd::Listen;
use flashfront_serve::upgrade::Predecessor;

use crate::inject::{self, Injection};
use crate::log::Dial;
use crate::usage::misused;
use crate::{choice, emulate, human, service, stopping};

/// Serve a cached volume until stopped. SIGTERM stops it cleanly. Another SIGTERM later stops it at
/// once, and the next start replays the log.
///
/// Prints one line `ready URI` on stdout when clients may connect. The log goes to stderr.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  flashfront serve --cache ssd.img --origin disk.img --nbd unix:/tmp/disk.sock
  flashfront serve --cache /dev/nvme0n1p4 --origin /dev/sdb --nbd tcp:127.0.0.1:10809 --http 127.0.0.1:9809
  flashfront serve --cache C --origin O --fuse /run/disk; losetup --find --show --direct-io=on /run/disk/data
  flashfront serve --cache C --origin O --ublk 0 --durability always; mount /dev/ublkb0 /mnt
  flashfront serve --cache C --origin O --nbd tcp:0.0.0.0:10809 --tls-certificates /etc/flashfront/pki
  flashfront serve --cache /dev/nvme0n1p4 --origin /dev/sdb --vhost-user-blk unix:/run/guest-disk.sock
  flashfront serve --print-config > flashfront.toml; flashfront serve --config flashfront.toml
  flashfront serve --cache /dev/nvme1n1 --origin /dev/sdf --disposable-cache --nbd unix:/run/data.sock
  flashfront serve --without-cache --accept-missing-dirty-data --origin O --nbd unix:/tmp/disk.sock")]
pub(crate) struct Serve {
    /// The cache device, made by `flashfront format`.
    #[arg(long, value_name = "PATH", required_unless_present_any = ["config", "print_config", "without_cache"])]
    cache: Option<PathBuf>,
    /// The second cache device, which has copies of dirty data. The order of the two devices does
    /// not matter.
    #[arg(long, value_name = "PATH", conflicts_with = "without_cache")]
    mirror: Option<PathBuf>,
    /// Make a new cache at each start where the device's content can't be used, as on a local SSD
    /// that comes back empty. Serve without a cache where the device is missing.
    ///
    /// Only in the modes writethrough (taken if none is set) and writearound, in which nothing is
    /// ever dirty. An empty device, or a cache of ours without dirty data, may be formatted. Name
    /// the cache device here once more, and it may be formatted whatever else lies on it.
    #[arg(
        long, value_name = "PATH", num_args = 0..=1, require_equals = true,
        conflicts_with_all = ["mirror", "without_mirror", "without_cache"]
    )]
    #[expect(clippy::option_option, reason = "the flag, and the flag with a path")]
    disposable_cache: Option<Option<PathBuf>>,
    /// Your word that the other cache device will not come back: serve --cache alone.
    ///
    /// Data that only the other device holds is lost, and from now on that device counts as old.
    /// The option is not needed after a failure that the daemon saw: then this device knows that it
    /// is complete. With --config the file's mirror is left alone.
    #[arg(long, conflicts_with_all = ["mirror", "without_cache"])]
    without_mirror: bool,
    /// The origin of the cache's only volume, if it is elsewhere now. That is a path, the URI of an
    /// NBD export, or the URL of a volume in an object store, or of its snapshot (URL@SNAPSHOT).
    #[arg(long, value_name = "PATH", required_unless_present_any = ["config", "print_config", "cache"])]
    origin: Option<PathBuf>,
    /// Where NBD clients connect: unix:PATH or tcp:HOST:PORT; may be given several times.
    #[arg(long, value_name = "PLACE", value_parser = Listen::parse)]
    nbd: Vec<Listen>,
    /// Where a virtual machine (vhost-user-blk) connects for its disk: unix:PATH; may be given
    /// several times.
    #[arg(long, value_name = "PLACE", value_parser = vhost_user_blk)]
    vhost_user_blk: Vec<Listener>,
    /// Empty folder to show the volumes in, as files that `losetup --direct-io=on` makes block
    /// devices of.
    #[arg(long, value_name = "DIR")]
    fuse: Option<PathBuf>,
    /// Make the volume /dev/ublkbN (root; the kernel's module ublk_drv). With --durability always
    /// it outlives a killed daemon.
    #[arg(long, value_name = "N")]
    ublk: Option<u32>,
    /// Control socket for status, set and drain [default: $XDG_RUNTIME_DIR/flashfront.sock, or
    /// /run/flashfront.sock].
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
    /// Folder for the memory of failed cache devices that can't be marked any more. It also
    /// remembers origins that were served without their cache [default: /var/lib/flashfront for
    /// root, else ~/.local/state/flashfront].
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Address of the dashboard, /metrics (Prometheus) and /healthz [default: none].
    #[arg(long, value_name = "ADDR:PORT", value_parser = http_address)]
    http: Option<SocketAddr>,
    /// Serve NBD with TLS: folder of server-cert.pem and server-key.pem. TCP clients must then use
    /// it.
    #[arg(long, value_name = "DIR")]
    tls_certificates: Option<PathBuf>,
    /// Serve only clients with a certificate of the authority in ca-cert.pem, in the same folder.
    #[arg(long)]
    tls_verify_peer: bool,
    /// Listen on other than loopback addresses although nothing is encrypted.
    #[arg(long)]
    insecure: bool,
    /// Change how writes are treated [default: as it was].
    #[arg(long, value_parser = choice::mode())]
    mode: Option<Mode>,
    /// The volume's name, by which NBD clients choose it [default: data].
    #[arg(long)]
    name: Option<String>,
    /// Read a TOML file; flags override it.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print a config file with every key explained, and end.
    #[arg(long, exclusive = true)]
    print_config: bool,
    /// Serve an origin that was changed behind the cache's back: clean data is dropped, dirty data
    /// is kept.
    #[arg(long)]
    accept_changed_origin: bool,
    /// Take volumes in object stores over from the writer that has them open, or died with them
    /// open. What it has not sent to the store is lost to the volume.
    #[arg(long)]
    take_over: bool,
    /// Serve the origin although its cache device is missing: in mode passthrough, at the origin's
    /// speed.
    ///
    /// If the cache held dirty data, the origin lacks it. The cache will notice when it is back:
    /// its clean data is dropped then, and its dirty data refused. With --config the file's cache
    /// is left alone.
    #[arg(long, conflicts_with_all = ["cache", "mode", "accept_changed_origin"])]
    without_cache: bool,
    /// Your word, for --without-cache: nothing was dirty in the cache, or you would rather lose it
    /// than wait.
    // clap waives `requires` when the required option conflicts with something given, so --cache is
    // named too.
    #[arg(long, requires = "without_cache", conflicts_with = "cache")]
    accept_missing_dirty_data: bool,
    /// How much may be written to the cache device in a day, a size or "0.5 DWPD"; beyond it reads
    /// are not cached [default: none].
    #[arg(long, value_name = "BUDGET")]
    flash_writes_per_day: Option<FlashBudget>,
    /// The most that may be dirty, a share or a size [default: 50%].
    #[arg(long, value_name = "LIMIT")]
    dirty_limit: Option<DirtyLimit>,
    /// Streams longer than this bypass the cache; 0B = never [default: 4 MiB].
    #[arg(long, value_name = "SIZE")]
    sequential_bypass: Option<Size>,
    /// How much is read at once from a slow origin, if a part of it is missed. 0B reads only the
    /// blocks that are asked for [default: 64 KiB].
    #[arg(long, value_name = "SIZE")]
    read_around: Option<Size>,
    /// When a write in writeback mode is acknowledged [default: flush].
    #[arg(long, value_parser = choice::durability())]
    durability: Option<Durability>,
    /// In which order dirty data goes to its origin. With `ordered` the origin alone is at every
    /// moment what it was at an earlier FLUSH, as a disk after a power cut. The default is `free`,
    /// or `ordered` if an origin is in an object store.
    #[arg(long, value_parser = choice::destage())]
    destage: Option<Destage>,
    /// Data should not stay dirty longer than this; from half of it on destage hurries [default:
    /// 10min].
    #[arg(long, value_name = "TIME")]
    max_dirty_age: Option<Age>,
    /// How the cache chooses the blocks that it keeps [default: the first of the list].
    ///
    /// Leave this alone unless you have compared: `flashfront sim replay TRACE --policy all` shows
    /// what each policy makes of a trace of yours.
    #[arg(long, value_parser = choice::policy())]
    policy: Option<String>,
    /// Threads: one for the engine, and the rest for NBD's and vhost-user-blk's clients [default:
    /// 1, which does it all].
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Threads that do the work of the cache's lanes, the engine's among them; at most as many as
    /// the cache has lanes [default: 1].
    #[arg(long, value_name = "N")]
    lane_threads: Option<usize>,
    /// RAM for payload [default: 160 MiB, or as much as lanes and threads need].
    #[arg(long, value_name = "SIZE")]
    buffer_bytes: Option<Size>,
    /// RAM for copies of blocks read from the cache device, on top of the buffers [default: 0B].
    #[arg(long, value_name = "SIZE")]
    ram_front_bytes: Option<Size>,
    /// Keep pages of the maps of volumes in object stores in a file of so many bytes [default: 0B,
    /// no file].
    #[arg(long, value_name = "SIZE")]
    map_file_bytes: Option<Size>,
    /// The file of --map-file-bytes [default: map-pages in the state folder].
    #[arg(long, value_name = "PATH")]
    map_file: Option<PathBuf>,
    /// Take all RAM for payload in pages of 2 MiB, not only large buffers: more RAM for a daemon
    /// with little to do.
    #[arg(long)]
    huge_pages: bool,
    /// How long each device may take for a read, write or flush. After that it counts as hanging;
    /// 0s = for ever [default: 35s for cache devices, 120s for origins].
    ///
    /// A cache device that hangs fails, or is left out of a mirrored cache. Requests to an origin
    /// that hangs are answered with an error, until it answers again. The time is for all devices,
    /// whatever times the file has for them.
    #[arg(long, value_name = "TIME")]
    device_timeout: Option<Age>,
    /// Make a device faulty, to test alarms: cache:FAULTS, mirror:FAULTS or origin:FAULTS, as in
    /// "cache:eio,op=read,p=0.001".
    ///
    /// FAULTS are rules separated by `;`. A rule is a fault and conditions separated by `,`.
    /// Faults: eio, nospace, unsupported, gone, timeout, stall, hang, short, flip, rot, misdirect,
    /// lost. Conditions: op=read|write|flush|discard|zero, at=BYTES..BYTES, p=PROBABILITY, after=N,
    /// times=N, hold=TIME (timeout, stall, hang), for=TIME (from the first hit on; then the device
    /// is well again). A rule seed=N makes chance repeatable. The option may be given once for each
    /// device. NEVER for data that you need.
    #[arg(long, value_name = "DEVICE:FAULTS")]
    inject: Vec<Injection>,
    /// Slow the cache devices down to the pace of a device that `flashfront sim` knows, for
    /// measurements.
    ///
    /// Only time changes, never data. A file smaller than that device counts as its beginning.
    /// Accesses for which the real device takes longer take longer.
    #[arg(long, value_name = "DEVICE", value_parser = emulate::name(), conflicts_with_all = ["inject", "without_cache"])]
    emulate_cache: Option<Known>,
    /// Slow the origins down to the pace of this device, as in "wd-re-4tb": also with
    /// --without-cache, to measure that disk alone.
    #[arg(long, value_name = "DEVICE", value_parser = emulate::name(), conflicts_with = "inject")]
    emulate_origin: Option<Known>,
}

impl Serve {
    /// Runs the daemon. `level` is the log level of the command line, if there is one. Else the
    /// file's level is set by `dial`.
    pub(crate) fn run(self, level: Option<LogLevel>, dial: Dial) -> anyhow::Result<ExitCode> {
        let predecessor =
            Predecessor::of_this_process().context("FLASHFRONT_UPGRADE is set, and stdin is no daemon's socket")?;
        let mut waiting = predecessor;
        let done = self.run_after(&mut waiting, level, dial);
        if let (Err(error), Some(predecessor)) = (&done, &mut waiting) {
            predecessor.fails(human::error(error));
        }
        done
    }

    /// Runs the daemon, in the place of the one that waits for this program if there is one.
    fn run_after(
        mut self,
        predecessor: &mut Option<Predecessor>,
        level: Option<LogLevel>,
        dial: Dial,
    ) -> anyhow::Result<ExitCode> {
        if self.print_config {
            human::print(config::REFERENCE)?;
            return Ok(ExitCode::SUCCESS);
        }
        let injections = std::mem::take(&mut self.inject);
        if self.without_cache && injections.iter().any(Injection::is_for_cache) {
            misused!("--inject cache:FAULTS has no cache device to break with --without-cache");
        }
        inject::check(&injections)?;
        let (emulated_cache, emulated_origin) = (self.emulate_cache, self.emulate_origin);
        let flags = self.clone();
        let config = self.into_config()?;
        dial.set(level.unwrap_or(config.log_level));
        // A starter reads one line, which the first program has written.
        let told_ready: fn(&[String]) = if predecessor.is_some() { service::ready } else { ready };
        let mut hooks = Hooks {
            ready: Some(Box::new(told_ready)),
            successor: Some(Box::new(service::succeeded)),
            ..Hooks::default()
        };
        let follower = FrontHandle::default();
        let passes = follower.clone();
        inject::arm(injections, &mut hooks);
        emulate::arm(emulated_cache, emulated_origin, &mut hooks);
        let stop = hooks.stop.clone();
        let (reload, late, reloaded) = (hooks.reload.clone(), hooks.reload.clone(), stop.clone());
        stopping::on_signals_of_a_daemon(&stop, service::stopping, move || {
            if passes.hang_up() {
                return;
            }
            match changed(&flags, level, &dial) {
                Ok(changed) => {
                    reload.ask(changed, &reloaded);
                    // Meanwhile another program may have taken this one's place. To be told twice
                    // does no harm.
                    let _ = passes.hang_up();
                }
                Err(error) => tracing::error!("reload: nothing was changed: {}", human::error(&error)),
            }
        })?;
        hooks.predecessor = predecessor.take();
        match daemon::run(&config, hooks)? {
            Ended::Clean { left, .. } if !left.lost.is_empty() => anyhow::bail!(
                "stopped; {}: this file of an origin had been removed, and what was written to it is gone with this daemon. If a copy was made, give it that name",
                left.lost.join(", ")
            ),
            Ended::Clean { blocks_dirty, left } if !left.overtaken.is_empty() => {
                anyhow::bail!("{}", overtaken(blocks_dirty, &left))
            }
            Ended::Clean { blocks_dirty, left } if !left.refused.is_empty() => {
                anyhow::bail!("{}", refused(blocks_dirty, &left))
            }
            Ended::HandedOver { front: Some(front) } if !service::is_told() => {
                return Ok(ExitCode::from(front.stay(&stop, &late, &follower)));
            }
            Ended::HandedOver { .. } => {}
            Ended::Clean { blocks_dirty, left } => tracing::info!("{}", stopped(blocks_dirty, &left)),
            // The stop was asked for before any client was served.
            Ended::AtOnce if !stop.is_at_once() => tracing::warn!("stopped before anything was served"),
            Ended::AtOnce if config.without_cache => anyhow::bail!("stopped at once"),
            Ended::AtOnce => anyhow::bail!("stopped at once; the next start replays the log"),
            Ended::WithoutCache { detached: true } => {
                tracing::info!("stopped; the cache was detached before, and the origins hold everything")
            }
            Ended::WithoutCache { .. } => tracing::info!(
                "stopped; the origin was served without its cache, which will drop its clean data at the next start with it, and refuse its dirty data"
            ),
            Ended::CacheFailed { blocks_dirty: 0 } => anyhow::bail!(
                "stopped; the cache device had failed. All that was acknowledged is on the origin; this cache is not to be served again"
            ),
            Ended::CacheFailed { blocks_dirty } => anyhow::bail!(
                "stopped; the cache device had failed, and {} of dirty data did not reach the origin",
                human::blocks(blocks_dirty)
            ),
        }
        Ok(ExitCode::SUCCESS)
    }

    fn into_config(self) -> anyhow::Result<Config> {
        let mut config = match (&self.config, self.cache) {
            (Some(path), cache) => {
                let mut config = Config::read(path)?;
                config.cache = cache.unwrap_or(config.cache);
                if config.cache.as_os_str().is_empty() && !self.without_cache {
                    misused!("{}: no cache device; give it the key `cache`, or say --cache PATH", path.display());
                }
                config
            }
            (None, Some(cache)) => Config::new(cache),
            (None, None) if self.without_cache => Config::new(PathBuf::new()),
            (None, None) => misused!("no cache device; give --cache PATH"),
        };
        if self.origin.is_some() || self.mode.is_some() || self.name.is_some() {
            match &mut config.volumes[..] {
                [] => {
                    let Some(origin) = self.origin else {
                        misused!("--mode and --name need a volume; give --origin PATH")
                    };
                    let name = self.name.unwrap_or_else(|| "data".to_owned());
                    config.volumes.push(Volume { mode: self.mode, ..Volume::new(&name, origin) });
                }
                [volume] => {
                    volume.origin = self.origin.unwrap_or_else(|| volume.origin.clone());
                    volume.name = self.name.unwrap_or_else(|| volume.name.clone());
                    volume.mode = self.mode.or(volume.mode);
                }
                _ => misused!(
                    "--origin, --mode and --name speak of one volume, and the file has several; change the file"
                ),
            }
        }
        let nbd = self.nbd.into_iter().map(Listener::Nbd).chain(self.vhost_user_blk);
        let others = [self.fuse.map(Listener::Fuse), self.ublk.map(Listener::Ublk)];
        let listeners: Vec<Listener> = nbd.chain(others.into_iter().flatten()).collect();
        if !listeners.is_empty() {
            config.listeners = listeners;
        }
        config.control = self.control.as_deref().map_or(config.control, control_said);
        config.state = self.state.or(config.state);
        config.http = self.http.or(config.http);
        config.insecure |= self.insecure;
        match (self.tls_certificates, &mut config.tls) {
            (Some(certificates), Some(tls)) => tls.certificates = certificates,
            (Some(certificates), none) => *none = Some(TlsFiles { certificates, verify_peer: false }),
            (None, _) => {}
        }
        match &mut config.tls {
            Some(tls) => tls.verify_peer |= self.tls_verify_peer,
            None if self.tls_verify_peer => misused!("--tls-verify-peer needs --tls-certificates DIR"),
            None => {}
        }
        config.accept_changed_origin = self.accept_changed_origin;
        config.take_over = self.take_over;
        config.mirror = self.mirror.or(config.mirror);
        config.disposable_cache = self.disposable_cache.map(Disposable::of_flag).or(config.disposable_cache);
        if let Some(timeout) = self.device_timeout {
            config.set_device_timeout(timeout);
        }
        config.without_mirror = self.without_mirror;
        config.without_cache = self.without_cache;
        config.accept_missing_dirty_data = self.accept_missing_dirty_data;
        config.buffer_bytes = self.buffer_bytes.or(config.buffer_bytes);
        config.huge_pages |= self.huge_pages;
        config.threads = self.threads.unwrap_or(config.threads);
        config.lane_threads = self.lane_threads.unwrap_or(config.lane_threads);
        config.ram_front_bytes = self.ram_front_bytes.unwrap_or(config.ram_front_bytes);
        config.map_file_bytes = self.map_file_bytes.unwrap_or(config.map_file_bytes);
        config.map_file = self.map_file.or(config.map_file);
        let policy = &mut config.policy;
        policy.dirty_limit = self.dirty_limit.unwrap_or(policy.dirty_limit);
        policy.flash_writes_per_day = self.flash_writes_per_day.unwrap_or(policy.flash_writes_per_day);
        policy.sequential_bypass = self.sequential_bypass.unwrap_or(policy.sequential_bypass);
        policy.read_around = self.read_around.unwrap_or(policy.read_around);
        policy.durability = self.durability.unwrap_or(policy.durability);
        policy.destage = self.destage.or(policy.destage);
        policy.max_dirty_age = self.max_dirty_age.unwrap_or(policy.max_dirty_age);
        if let Some(name) = self.policy {
            policy.name = name;
        }
        config.check()?;
        Ok(config)
    }
}

/// Reads the configuration anew, with the same flags.
fn changed(flags: &Serve, level: Option<LogLevel>, dial: &Dial) -> anyhow::Result<Reload> {
    if flags.config.is_none() {
        return Ok(Reload { config: None, taken: Box::new(|| {}) });
    }
    let config = flags.clone().into_config()?;
    let (level, dial) = (level.unwrap_or(config.log_level), dial.clone());
    Ok(Reload { config: Some(config), taken: Box::new(move || dial.change(level)) })
}

/// Tells the last words after a clean stop.
fn stopped(blocks_dirty: u64, left: &Left) -> String {
    let there: Vec<String> = left.clients.iter().map(|(place, count)| format!("{count} at {place}")).collect();
    let unknown = "what they had not written yet is not known here";
    match (blocks_dirty, there.is_empty()) {
        (0, true) => "stopped; the origin is complete".to_owned(),
        (0, false) => format!(
            "stopped; all that was acknowledged is on the origin, but clients were still there ({}): {unknown}",
            there.join(", ")
        ),
        (_, is_alone) => {
            let dirty = human::blocks(blocks_dirty);
            let clients = if is_alone {
                String::new()
            } else {
                format!("; clients were still there ({}): {unknown}", there.join(", "))
            };
            format!(
                "stopped; {dirty} of dirty data stay in the cache, so the origin is not complete without it (`flashfront drain` before the stop changes that){clients}"
            )
        }
    }
}

/// Tells the last words after a stop whose origin takes no dirty data.
fn refused(blocks_dirty: u64, left: &Left) -> String {
    let why: Vec<String> = left.refused.iter().map(|(volume, error)| format!("volume {volume}: {error}")).collect();
    format!(
        "stopped; {} of dirty data stay in the cache, because the origin refuses it ({}). Nothing of it is lost, but the origin is not complete; writes that waited for room have failed. Make room on the origin, or mend it, and serve it with this cache again, or run `flashfront destage`",
        human::blocks(blocks_dirty),
        why.join(", ")
    )
}

/// Tells the last words after a stop of a daemon that another writer has overtaken.
fn overtaken(blocks_dirty: u64, left: &Left) -> String {
    let by: Vec<String> = left.overtaken.iter().map(|(volume, by)| format!("volume {volume}: {by}")).collect();
    format!(
        "stopped; {} of dirty data stay in the cache, and another writer has opened the origin ({}), so they never reach it. They are lost to that volume, and the next start with this cache is refused; `flashfront format` makes the cache empty",
        human::blocks(blocks_dirty),
        by.join(", ")
    )
}

fn vhost_user_blk(place: &str) -> Result<Listener, String> {
    Listener::vhost_user_blk(place, None)
}

/// Tells that clients may connect. A reader that has gone does not stop the daemon.
fn ready(uris: &[String]) {
    let mut stdout = std::io::stdout().lock();
    let told = writeln!(stdout, "ready {}", uris.join(" ")).and_then(|()| stdout.flush());
    if let Err(error) = told {
        tracing::warn!("stdout: {error}; ready at {}", uris.join(" "));
    }
    service::ready(uris);
}

#[cfg(test)]
mod tests;
