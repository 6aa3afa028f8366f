// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory of clients that disappears: a file that is mapped and then made shorter by its owner.
//!
//! An access beyond the new end raises SIGBUS, which would end the daemon. Here the whole mapping
//! is replaced by zeroes and the access goes on; [`Guard::is_hit`] tells, and the client is hung up
//! on. A SIGBUS anywhere else goes where it went before. (Sealing the memfd against shrinking is
//! not for us to ask: QEMU's memory may be any file, and libblkio's memfds can't be sealed.) Test:
//! `hostile_memory_that_shrinks_is_no_crash`.
#![expect(unsafe_code, reason = "a signal handler that repairs mappings; every block has its SAFETY comment")]

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Mappings that can be guarded at a time, in the whole process.
const GUARDS_MAX: usize = 4096;
/// The most bytes of all mappings: half of the addresses that a process has on x86-64.
///
/// A file that is only long costs a client nothing. Without a bound some of them would leave no
/// address for the daemon's own memory. A client may have as many addresses as it leaves to others.
/// So some are always left for the next client (test: `hostile_memory_takes_not_all_addresses`).
const BYTES_MAX: u64 = 64 << 40;

struct Slot {
    /// Taken, and so not for another guard.
    taken: AtomicBool,
    /// First byte; 0 = none.
    start: AtomicUsize,
    bytes: AtomicUsize,
    hit: AtomicBool,
}

static SLOTS: [Slot; GUARDS_MAX] = [const {
    Slot {
        taken: AtomicBool::new(false),
        start: AtomicUsize::new(0),
        bytes: AtomicUsize::new(0),
        hit: AtomicBool::new(false),
    }
}; GUARDS_MAX];

/// The bytes of all mappings that are there or about to be.
static BYTES: AtomicU64 = AtomicU64::new(0);

/// Whether SIGBUS comes to us; front-ends may be in several threads.
static INSTALLED: Mutex<bool> = Mutex::new(false);
/// The action on SIGBUS before ours.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// Watches over one mapping; dropped before it is unmapped.
#[derive(Debug)]
pub(super) struct Guard(usize);

impl Guard {
    /// Makes a guard for a mapping of this many bytes that is about to be made. The client has
    /// `own` bytes already.
    pub(super) fn new(bytes: usize, own: u64) -> io::Result<Self> {
        install()?;
        let free = |slot: &Slot| !slot.taken.swap(true, Ordering::AcqRel);
        let Some(place) = SLOTS.iter().position(free) else {
            return Err(io::Error::other(format!("more than {GUARDS_MAX} mappings of clients' memory")));
        };
        let slot = &SLOTS[place];
        slot.hit.store(false, Ordering::Relaxed);
        slot.bytes.store(bytes, Ordering::Relaxed);
        // From here on it is given back by dropping it.
        let guard = Self(place);
        let all = BYTES.fetch_add(bytes as u64, Ordering::AcqRel).saturating_add(bytes as u64);
        let left = BYTES_MAX.saturating_sub(all);
        if own.saturating_add(bytes as u64) > left {
            return Err(io::Error::other(format!(
                "more memory than it would leave to other clients; all have {} TiB together",
                BYTES_MAX >> 40
            )));
        }
        Ok(guard)
    }

    /// The memory is there, and begins at `start`.
    pub(super) fn watch(&self, start: *const u8) {
        SLOTS[self.0].start.store(start.addr(), Ordering::Release);
    }

    /// Whether some of the memory was gone when it was needed.
    pub(super) fn is_hit(&self) -> bool {
        SLOTS[self.0].hit.load(Ordering::Relaxed)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let slot = &SLOTS[self.0];
        slot.start.store(0, Ordering::Release);
        BYTES.fetch_sub(slot.bytes.load(Ordering::Relaxed) as u64, Ordering::AcqRel);
        slot.taken.store(false, Ordering::Release);
    }
}

/// Makes SIGBUS come to [`on_bus_error`], once.
fn install() -> io::Result<()> {
    let mut installed = INSTALLED.lock().unwrap_or_else(PoisonError::into_inner);
    if *installed {
        return Ok(());
    }
    // SAFETY: a `sigaction` is plain data, and all zeroes is a valid one.
    let mut ours: libc::sigaction = unsafe { std::mem::zeroed() };
    ours.sa_sigaction = on_bus_error as extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) as usize;
    ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: as above.
    let mut before: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: asks only; `before` is a valid place for the answer.
    if unsafe { libc::sigaction(libc::SIGBUS, std::ptr::null(), &raw mut before) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // First remembered, then replaced, so that the handler finds it.
    let _ = BEFORE.set(before);
    // SAFETY: the handler has the signature that SA_SIGINFO asks for, and calls only what
    // signal-safety(7) allows: atomics, mmap, sigaction.
    if unsafe { libc::sigaction(libc::SIGBUS, &raw const ours, std::ptr::null_mut()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    *installed = true;
    Ok(())
}

extern "C" fn on_bus_error(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel gives a valid siginfo to a handler with SA_SIGINFO, and SIGBUS has an
    // address.
    let at = unsafe { (*info).si_addr() }.addr();
    for slot in &SLOTS {
        let start = slot.start.load(Ordering::Acquire);
        let bytes = slot.bytes.load(Ordering::Relaxed);
        if start == 0 || at < start || at - start >= bytes {
            continue;
        }
        slot.hit.store(true, Ordering::Relaxed);
        // SAFETY: this replaces exactly the mapping that a `Guard` watches over by one of the same
        // place and length. Its owner made it and has not unmapped it. Readers of it go on with
        // zeroes.
        let mapped = unsafe {
            libc::mmap(
                std::ptr::with_exposed_provenance_mut(start),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_FIXED | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if mapped != libc::MAP_FAILED {
            return;
        }
    }
    pass_on(signal, info, context);
}

/// Does what the process would have done without us: the fault is not ours.
fn pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let before = BEFORE.get();
    let handler = before.map_or(libc::SIG_DFL, |before| before.sa_sigaction);
    if handler == libc::SIG_DFL || handler == libc::SIG_IGN {
        // SAFETY: the default action; the access is repeated on return, and then ends the process.
        unsafe {
            let mut default: libc::sigaction = std::mem::zeroed();
            default.sa_sigaction = libc::SIG_DFL;
            libc::sigaction(signal, &raw const default, std::ptr::null_mut());
        }
        return;
    }
    if before.is_some_and(|before| before.sa_flags & libc::SA_SIGINFO != 0) {
        // SAFETY: it was installed with SA_SIGINFO, so it is a function of this signature.
        let handler = unsafe {
            std::mem::transmute::<usize, extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void)>(handler)
        };
        handler(signal, info, context);
    } else {
        // SAFETY: it was installed without SA_SIGINFO, so it is a function of this signature.
        let handler = unsafe { std::mem::transmute::<usize, extern "C" fn(libc::c_int)>(handler) };
        handler(signal);
    }
}
