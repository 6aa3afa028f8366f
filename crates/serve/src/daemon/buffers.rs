// SPDX-License-Identifier: MIT OR Apache-2.0
//! Divides RAM for payload: a share for the engine, and the rest in equal parts for the clients of
//! each thread.

use std::io;

use flashfront_device::{Arena, CHUNK_BYTES};
use flashfront_engine::policy::Window;
use flashfront_engine::{BLOCK_BYTES, buffers_most};

use super::error::MemoryError;
use crate::config::{BUFFER_BYTES_DEFAULT, Config, Listener, Size};
use crate::frontend::nbd::{BUFFER_BYTES_MIN, LONGEST_READ_BYTES};

/// A lane with an arena of its own takes this much beside the engine's share.
///
/// Each size of buffer has a chunk of 4 MiB, and one chunk is to spare. Commits have five chunks
/// with two lanes, three or four with more lanes.
const LANE_APART_BYTES: u64 = 36 << 20;
/// The pump's thread keeps this much beside the engine's share if it has no clients: emulated and
/// faulty devices copy.
const DEVICE_BUFFER_BYTES: u64 = 4 << 20;

/// The most for payload that is on its way in. Beyond it payload comes in short pieces.
const PAYLOAD_BYTES_MOST: u64 = 32 << 20;

/// The bytes for all buffers that the engine may have at once: a chunk serves buffers of one size.
fn engine_bytes(lanes: u32) -> u64 {
    let chunk = u64::from(CHUNK_BYTES);
    let chunks_of = |(blocks, count): (u32, u32)| {
        let bytes = u64::from(blocks.next_power_of_two()) * BLOCK_BYTES;
        u64::from(count).div_ceil(chunk / bytes)
    };
    buffers_most(lanes).into_iter().map(chunks_of).sum::<u64>() * chunk
}

/// The RAM front of a lane that has an arena of its own (32 GiB, with all else).
const FRONT_OF_LANE_BYTES_MAX: u64 = 30 << 30;

/// Whether the pump's thread has clients of its own.
fn has_clients_here(config: &Config) -> bool {
    config.carriers() == 0 || !config.listeners.iter().all(Listener::is_portable)
}

/// The bytes that lanes take beside the engine's share if several lanes can work at the same time.
fn apart_bytes(config: &Config, lanes: u32) -> u64 {
    if config.lane_helpers() > 0 { u64::from(lanes) * LANE_APART_BYTES } else { 0 }
}

/// Divides one part of the clients' memory into shares.
///
/// Requests that may wait for an origin get at least the bytes of the longest read. Payload on its
/// way in has a share. The rest, two chunks at least, is for requests that end by themselves.
fn in_shares(arena: Arena, part: u64) -> Arena {
    let waiting = (part / 2).max(LONGEST_READ_BYTES);
    let payload = (part / 8).max(u64::from(CHUNK_BYTES)).min(PAYLOAD_BYTES_MOST);
    arena.in_shares(waiting, payload)
}

/// Returns the bytes that are not for clients, and the number of parts that the rest is divided
/// into.
fn shares(config: &Config, lanes: u32) -> (u64, u64) {
    let here = has_clients_here(config);
    let kept = engine_bytes(lanes) + apart_bytes(config, lanes) + if here { 0 } else { DEVICE_BUFFER_BYTES };
    (kept, config.carriers() as u64 + u64::from(here))
}

/// The least `buffer_bytes` for a cache with this number of lanes.
fn least(config: &Config, lanes: u32) -> u64 {
    let (kept, parts) = shares(config, lanes);
    kept + parts * BUFFER_BYTES_MIN
}

fn buffer_bytes(config: &Config, lanes: u32) -> u64 {
    config.buffer_bytes.map_or_else(|| least(config, lanes).max(BUFFER_BYTES_DEFAULT), |given| given.0)
}

/// Whether there is enough, and not more than there is.
pub(super) fn check(config: &Config, lanes: u32) -> Result<(), MemoryError> {
    if config.lane_helpers() >= lanes as usize && config.lane_helpers() > 0 {
        return Err(MemoryError::IdleLaneThreads { given: config.lane_threads, lanes });
    }
    let front_most = Size(FRONT_OF_LANE_BYTES_MAX * u64::from(lanes));
    if config.lane_helpers() > 0 && config.ram_front_bytes > front_most {
        return Err(MemoryError::FrontOfLanes { given: config.ram_front_bytes, most: front_most, lanes });
    }
    let (buffers, least) = (buffer_bytes(config, lanes), least(config, lanes));
    if buffers < least {
        let (threads, lane_threads) = (config.threads, config.lane_threads);
        return Err(MemoryError::BufferSmall { given: buffers, least, lanes, threads, lane_threads });
    }
    if config.huge_pages
        && let Some(setting) = no_huge_pages()
    {
        return Err(MemoryError::NoHugePages { setting });
    }
    let most = ram_bytes();
    let given = buffers.saturating_add(config.ram_front_bytes.0);
    if given > most {
        return Err(MemoryError::BufferLarge { given: Size(given), most: Size(most) });
    }
    Ok(())
}

/// The kernel's setting for huge pages: for all memory, for memory that asks for them, or never.
const HUGE_PAGES: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
/// Whether pages of this size alone are given, since Linux 6.8; may say `inherit`.
const HUGE_PAGES_2M: &str = "/sys/kernel/mm/transparent_hugepage/hugepages-2048kB/enabled";

/// Returns the setting by which the kernel gives no huge pages, if there is one.
fn no_huge_pages() -> Option<&'static str> {
    let decides = |path| std::fs::read_to_string(path).is_ok_and(|setting| !setting.contains("[inherit]"));
    let path = if decides(HUGE_PAGES_2M) { HUGE_PAGES_2M } else { HUGE_PAGES };
    std::fs::read_to_string(path).map_or(true, |setting| setting.contains("[never]")).then_some(path)
}

/// RAM of this machine.
fn ram_bytes() -> u64 {
    let info = rustix::system::sysinfo();
    u64::from(info.mem_unit).saturating_mul(info.totalram)
}

/// Threads that help to open a cache with this number of lanes, if the config asks for none.
///
/// No client is served yet, and one thread takes a minute for a full cache of 1 TiB. Each lane
/// takes a chunk for its checkpoint meanwhile.
fn opening_helpers(lanes: u32) -> usize {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    processors.min(lanes as usize) - 1
}

/// Makes the pump's arena, and the arenas of the carriers, from which the pump borrows.
///
/// # Errors
/// When the kernel refuses a thread for lanes.
pub(super) fn arenas(config: &Config, lanes: u32) -> io::Result<(Arena, Vec<Arena>)> {
    let (buffers, (kept, parts)) = (buffer_bytes(config, lanes), shares(config, lanes));
    // The parts add up to no more than was allowed, and an arena rounds up to whole chunks.
    let chunk = u64::from(CHUNK_BYTES);
    let part = (buffers - kept) / parts / chunk * chunk;
    // The last buffer of each lane's window is rounded up to at most 1 MiB.
    let front = config.ram_front_bytes.0 + Window::BYTES_MAX + (u64::from(lanes) << 20);
    let apart = apart_bytes(config, lanes);
    let all_here = if config.carriers() == 0 { buffers } else { kept } - apart;
    let here = if config.carriers() > 0 && has_clients_here(config) { part } else { 0 };
    let pump = Arena::with_reserve(all_here + here + front, engine_bytes(lanes) + front);
    let mut pump = pump.in_huge_pages(config.huge_pages);
    if has_clients_here(config) {
        pump = in_shares(pump, if config.carriers() == 0 { buffers - kept } else { part });
    }
    let lend = |number| {
        let (arena, loan) = Arena::lending(number, part);
        pump.borrow_from(loan);
        in_shares(arena.in_huge_pages(config.huge_pages), part)
    };
    let carriers = (0..config.carriers()).map(lend).collect();
    if config.lane_helpers() > 0 {
        pump.set_apart(lanes as usize, config.lane_helpers(), (apart + front) / u64::from(lanes))?;
    } else if opening_helpers(lanes) > 0
        && let Err(error) = pump.set_apart(lanes as usize, opening_helpers(lanes), LANE_APART_BYTES)
    {
        tracing::warn!("no threads to open the cache with ({error}): one does it all");
    }
    Ok((pump, carriers))
}

#[cfg(test)]
mod tests {
    use flashfront_engine::Memory as _;

    use super::*;

    #[test]
    fn all_arenas_are_in_huge_pages_or_none() {
        let mut config = Config::new("cache".into());
        config.buffer_bytes = Some(Size(256 << 20));
        config.listeners.push(toml::from_str("nbd = \"unix:/run/x.sock\"").expect("a listener"));
        for (threads, huge_pages) in [(1, false), (1, true), (3, false), (3, true)] {
            (config.threads, config.huge_pages) = (threads, huge_pages);
            let (pump, carriers) = arenas(&config, 1).expect("no threads are wanted");
            assert_eq!(carriers.len(), threads - 1);
            let all = carriers.iter().chain([&pump]);
            assert!(all.into_iter().all(|arena| arena.is_in_huge_pages() == huge_pages), "{threads} {huge_pages}");
        }
    }

    #[test]
    fn the_least_is_enough_and_less_is_not() {
        let mut config = Config::new("cache".into());
        assert_eq!(least(&config, 1), crate::config::BUFFER_BYTES_MIN);
        for lanes in [1, 4, 5, 16] {
            let enough = least(&config, lanes);
            config.buffer_bytes = Some(Size(enough));
            assert!(check(&config, lanes).is_ok(), "{lanes}");
            config.buffer_bytes = Some(Size(enough - 1));
            let told = check(&config, lanes).expect_err("it is less").to_string();
            assert!(told.contains(&Size(enough).to_string()), "{told}");
        }
    }

    #[test]
    fn the_default_is_enough_for_all_lanes_and_threads() {
        let mut config = Config::new("cache".into());
        config.listeners.push(toml::from_str("nbd = \"unix:/run/x.sock\"").expect("a listener"));
        for (lanes, threads, lane_threads, mib) in [(1, 1, 1, 160), (16, 1, 1, 332), (4, 3, 1, 204), (4, 1, 2, 292)] {
            (config.threads, config.lane_threads) = (threads, lane_threads);
            assert!(check(&config, lanes).is_ok(), "{lanes} {threads} {lane_threads}");
            assert_eq!(buffer_bytes(&config, lanes) >> 20, mib, "{lanes} {threads} {lane_threads}");
        }
    }

    /// Clients have all their memory in small pieces, so that no other client can use any of it.
    /// The engine has all its memory, of each size.
    #[test]
    fn the_engine_and_clients_have_room_for_all_they_may_ask_for() {
        for (lanes, threads) in [(1, 1), (2, 1), (4, 1), (5, 1), (16, 1), (4, 3)] {
            let mut config = Config::new("cache".into());
            (config.buffer_bytes, config.threads) = (Some(Size(1 << 30)), threads);
            config.listeners.push(toml::from_str("nbd = \"unix:/run/x.sock\"").expect("a listener"));
            let (mut pump, _) = arenas(&config, lanes).expect("no threads are wanted");
            while pump.try_alloc(BLOCK_BYTES as u32).is_some() {}
            let windows = Window::BYTES_MAX.div_ceil(u64::from(lanes)).div_ceil(1 << 20) as u32 * lanes;
            for (blocks, count) in buffers_most(lanes).into_iter().chain([(256, windows)]) {
                (0..count).for_each(|_| _ = pump.alloc(blocks * BLOCK_BYTES as u32));
            }
        }
    }

    /// Lanes that work at the same time take memory of their own: commits, merges, and reads around
    /// misses.
    #[test]
    fn lanes_at_work_have_room_for_all_they_may_ask_for() {
        for lanes in [2_u32, 4, 5, 16] {
            let of_lane =
                (LANE_APART_BYTES * u64::from(lanes) + Window::BYTES_MAX + (u64::from(lanes) << 20)) / u64::from(lanes);
            let mut arena = Arena::new(of_lane);
            let window = Window::BYTES_MAX.div_ceil(u64::from(lanes)).div_ceil(1 << 20) as u32;
            for (blocks, count) in buffers_most(1).into_iter().chain([(256, window)]) {
                // Runs of destage aren't a lane's own affair.
                let count = if blocks == 256 { count.min(20) } else { count };
                (0..count).for_each(|_| _ = arena.alloc(blocks * BLOCK_BYTES as u32));
            }
        }
    }

    #[test]
    fn lanes_with_threads_take_more_and_are_as_many_as_there_are() {
        let mut config = Config::new("cache".into());
        let of_one = least(&config, 2);
        (config.lane_threads, config.buffer_bytes) = (3, Some(Size(of_one)));
        let refusal = |config: &Config, lanes| check(config, lanes).expect_err("it can't work").to_string();
        assert!(
            refusal(&config, 2).contains("lane_threads is 3, but this cache has 2 lanes"),
            "{}",
            refusal(&config, 2)
        );
        config.lane_threads = 2;
        assert!(refusal(&config, 2).contains("lane_threads = 2"), "{}", refusal(&config, 2));
        config.buffer_bytes = Some(Size(of_one + 2 * LANE_APART_BYTES));
        assert!(check(&config, 2).is_ok());
        let (pump, _) = arenas(&config, 2).expect("there are threads");
        assert_eq!(pump.apart_from(), Some(4));
        config.ram_front_bytes = Size(61 << 30);
        assert!(refusal(&config, 2).contains("at most 60 GiB"), "{}", refusal(&config, 2));
        // Where there is no cache there are no lanes, and that is no hour to be particular.
        (config.without_cache, config.ram_front_bytes) = (true, Size(0));
        assert!(check(&config, 1).is_ok());
    }

    #[test]
    fn huge_pages_are_refused_where_the_kernel_gives_none() {
        let mut config = Config::new("cache".into());
        config.huge_pages = true;
        match (no_huge_pages(), check(&config, 1)) {
            (None, Ok(())) => {}
            (Some(setting), Err(error)) => assert!(error.to_string().contains(setting), "{error}"),
            (found, checked) => panic!("{found:?}: {checked:?}"),
        }
    }
}
