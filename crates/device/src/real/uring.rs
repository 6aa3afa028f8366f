// SPDX-License-Identifier: MIT OR Apache-2.0
//! I/O by io_uring: one ring for all devices of a thread, registered files and buffers.
//!
//! A turn of the pump takes one system call. [`Uring::wait`] hands over what was queued, sleeps,
//! and lets the kernel post what has ended. The ring waits for the sockets as well.
//!
//! No more jobs are in flight than the completion queue has entries, so it can't overflow; the
//! others wait in a list. Registration is an optimisation. Where the kernel refuses (an old one, or
//! RLIMIT_MEMLOCK) the plain opcodes do the same. The ring is made disabled, and the first
//! submission enables it. So the thread that submits first is the ring's one issuer, and not the
//! one that opened the devices.
#![expect(unsafe_code, reason = "the kernel is given addresses")]

use std::collections::VecDeque;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use io_uring::types::{Fd, Fixed, FsyncFlags, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode, squeue};
use rustix::io::Errno;

use super::file::DeviceFile;
use super::job::{Job, Step};
use super::spin::Spin;
use super::threads::Threads;
use crate::arena::Pin;
use crate::{CHUNK_BYTES, Chunk, Done};

const SUBMISSIONS: u32 = 256;
const COMPLETIONS: u32 = 2048;
/// Jobs in flight; two entries are left for the watches.
const JOBS_MAX: usize = COMPLETIONS as usize - 2;
/// `user_data` of the watch on the caller's descriptor, and of the one on the side thread's.
const WATCH: u64 = u64::MAX;
const WATCH_SIDE: u64 = u64::MAX - 1;
/// Chunks that can be registered: 16 GiB of arena. What lies beyond uses the plain opcodes.
const CHUNKS_MAX: u32 = 4096;
const FILES_MAX: u32 = 64;
/// The most workers of the kernel for I/O that can't be done while it is submitted: flushes, and
/// calls that would sleep.
///
/// All devices share them. So there are as many as there can be jobs, and a device that hangs
/// leaves some to the others. The kernel starts them as they are wanted.
const IO_WORKERS_MAX: u32 = JOBS_MAX as u32;
/// Bytes of I/O after which a chunk is registered, so that a daemon with little to do stays small.
///
/// To register pins all of a chunk, touched or not, and takes up to 1.9 ms. Until then each I/O
/// pins its own pages, which takes as much for 16 MiB. (0.3 us for 4 KiB, 37 us for 1 MiB; 2 shared
/// cores, Linux 6.18.)
const REGISTER_BYTES: u64 = 4 * CHUNK_BYTES as u64;

/// A chunk, as the ring knows it.
enum Known {
    /// The chunk is not registered; this many bytes went through it.
    Plain(u64),
    Registered(Pin),
}

/// A ring and what is in it.
pub(super) struct Uring {
    ring: IoUring,
    enabled: bool,
    spin: Spin,
    /// The ring waits for the caller's descriptor.
    watching: bool,
    /// Whether the watched descriptor was seen readable.
    readable: bool,
    /// Jobs in flight by `user_data`. Not dropped while the kernel may use them.
    slots: ManuallyDrop<Vec<Option<Job>>>,
    free: Vec<u32>,
    backlog: VecDeque<Job>,
    files: bool,
    buffers: bool,
    /// Chunks by number.
    chunks: Vec<Known>,
    /// Threads for jobs that only a thread can wait for: BLKDISCARD, the search for holes, and
    /// devices whose I/O may sleep while it is started.
    side: Threads,
    side_in_flight: usize,
    watching_side: bool,
    abandoned: bool,
}

impl Uring {
    /// A ring with the best flags this kernel knows. `fixed` = register files and buffers.
    pub(super) fn new(fixed: bool) -> io::Result<Self> {
        let ring = build()?;
        let side = Threads::new()?;
        let files = fixed && ring.submitter().register_files_sparse(FILES_MAX).is_ok();
        let buffers = fixed && ring.submitter().register_buffers_sparse(CHUNKS_MAX).is_ok();
        Ok(Self {
            ring,
            enabled: false,
            spin: Spin::default(),
            watching: false,
            readable: false,
            slots: ManuallyDrop::new(Vec::new()),
            free: Vec::new(),
            backlog: VecDeque::new(),
            files,
            buffers,
            chunks: Vec::new(),
            side,
            side_in_flight: 0,
            watching_side: false,
            abandoned: false,
        })
    }

    /// Registers a device's file, if the kernel agrees; says whether.
    pub(super) fn register(&mut self, device: u32, file: &DeviceFile) -> bool {
        self.files && device < FILES_MAX && file.file().is_some_and(|it| self.update_file(device, it.as_raw_fd()))
    }

    /// A device gives no more jobs.
    pub(super) fn close(&mut self, device: u32, registered: bool) {
        if registered {
            // If refused, the file stays open until the ring is closed: harmless but for its lock.
            self.update_file(device, -1);
        }
        self.side.close(device);
    }

    /// Waits no longer for jobs in flight.
    pub(super) const fn abandon(&mut self) {
        self.abandoned = true;
        self.side.abandon();
    }

    fn update_file(&mut self, device: u32, fd: RawFd) -> bool {
        self.ring.submitter().register_files_update(device, &[fd]).is_ok()
    }

    /// Takes jobs; [`Uring::wait`] hands them to the kernel.
    pub(super) fn start(&mut self, jobs: impl Iterator<Item = Job>) {
        for job in jobs {
            if job.file.is_by_threads() {
                self.side_in_flight += 1;
                self.side.start(std::iter::once(job));
            } else {
                self.backlog.push_back(job);
            }
        }
        self.fill();
    }

    /// Gives free slots to waiting jobs.
    fn fill(&mut self) {
        while let Some(job) = self.backlog.pop_front() {
            let Some(number) = self.free_slot() else { return self.backlog.push_front(job) };
            self.slots[number as usize] = Some(job);
            self.push_step(number);
        }
    }

    fn free_slot(&mut self) -> Option<u32> {
        if self.free.is_empty() && self.slots.len() < JOBS_MAX {
            self.slots.push(None);
            return Some(self.slots.len() as u32 - 1);
        }
        self.free.pop()
    }

    /// Queues the next step of the job in this slot.
    fn push_step(&mut self, number: u32) {
        let job = self.slots[number as usize].as_ref().expect("the slot was filled by the caller");
        let step = job.step();
        if let Step::BlkDiscard { .. } | Step::Map { .. } = step {
            return self.start_aside(number);
        }
        let chunk = job.chunk.clone();
        let bytes = match step {
            Step::Read { len, .. } | Step::Write { len, .. } => u64::from(len),
            _ => 0,
        };
        let (fd, fixed) = (job.file.file().map_or(-1, AsRawFd::as_raw_fd), job.fixed_file.then_some(job.device));
        let buffer = chunk.and_then(|(number, chunk)| self.registered(number, &chunk, bytes));
        self.push(&entry(step, fixed, fd, buffer).user_data(u64::from(number)));
    }

    fn push(&mut self, entry: &squeue::Entry) {
        // SAFETY: file and memory of the entry belong to a job in `slots`, which is kept until
        // its completion has been reaped.
        while unsafe { self.ring.submission().push(entry) }.is_err() {
            self.submit();
        }
    }

    /// Returns the number of a chunk in the kernel's table, if it is there. A chunk that is used
    /// much is put there.
    fn registered(&mut self, number: u32, chunk: &Arc<Chunk>, bytes: u64) -> Option<u16> {
        match self.chunks.get_mut(number as usize) {
            // Another arena's chunk of the same number is not the registered one.
            Some(Known::Registered(pin)) => pin.is_of(chunk).then_some(number as u16),
            Some(Known::Plain(through)) if *through < REGISTER_BYTES => {
                *through += bytes;
                None
            }
            _ => self.register_chunk(number, chunk),
        }
    }

    fn register_chunk(&mut self, number: u32, chunk: &Arc<Chunk>) -> Option<u16> {
        if !self.buffers || number >= CHUNKS_MAX {
            return None;
        }
        let at = number as usize;
        if self.chunks.len() <= at {
            self.chunks.resize_with(at + 1, || Known::Plain(0));
            return None;
        }
        let pin = chunk.pin();
        if !self.update_chunk(number, chunk.ptr().as_ptr().cast(), CHUNK_BYTES as usize) {
            // RLIMIT_MEMLOCK: further chunks would be refused too.
            self.buffers = false;
            return None;
        }
        self.chunks[at] = Known::Registered(pin);
        Some(number as u16)
    }

    /// Lets go of a chunk that is not used any more.
    pub(super) fn unregister_chunk(&mut self, number: usize, chunk: &Arc<Chunk>) {
        match self.chunks.get(number) {
            Some(Known::Registered(pin)) if pin.is_of(chunk) => {
                // If the kernel refuses, it stays registered, and the arena keeps it.
                if !self.update_chunk(number as u32, std::ptr::null_mut(), 0) {
                    return;
                }
                // There is room for another, if one was refused.
                self.buffers = true;
            }
            Some(Known::Plain(_)) => {}
            Some(Known::Registered(_)) | None => return,
        }
        self.chunks[number] = Known::Plain(0);
    }

    /// Puts memory into the kernel's table; none takes out what was there.
    fn update_chunk(&self, number: u32, base: *mut libc::c_void, bytes: usize) -> bool {
        let memory = libc::iovec { iov_base: base, iov_len: bytes };
        // SAFETY: either no memory, or a chunk whose pin goes into `chunks`: it stays mapped as
        // long as it
        // is registered.
        unsafe { self.ring.submitter().register_buffers_update(number, &[memory], None) }.is_ok()
    }

    /// Hands over what was queued, sleeps, and passes everything that has ended to `end`.
    ///
    /// It sleeps until something has ended, `watched` is readable or the time is over. Says whether
    /// `watched` was seen readable. That must be the same descriptor at every call.
    pub(super) fn wait(
        &mut self,
        watched: Option<RawFd>,
        timeout: Option<Duration>,
        end: &mut dyn FnMut(u32, Done),
    ) -> bool {
        // One-shot and armed again: then readiness from before the arming counts too.
        if let Some(fd) = watched
            && !std::mem::replace(&mut self.watching, true)
        {
            self.watch(fd, WATCH);
        }
        if self.side_in_flight > 0 && !std::mem::replace(&mut self.watching_side, true) {
            self.watch(self.side.wake_fd().as_raw_fd(), WATCH_SIDE);
        }
        self.enter(timeout);
        self.reap(end);
        // Follow-up steps, and jobs that waited for a slot: the kernel's before the caller turns to
        // other things.
        self.fill();
        if !self.ring.submission().is_empty() {
            self.submit();
        }
        std::mem::take(&mut self.readable)
    }

    fn watch(&mut self, fd: RawFd, user_data: u64) {
        self.push(&opcode::PollAdd::new(Fd(fd), libc::POLLIN as u32).build().user_data(user_data));
    }

    /// Hands over what is queued and sleeps until there is a completion. It makes no call if there
    /// is nothing to hand over, to post or to wait for.
    fn enter(&mut self, timeout: Option<Duration>) {
        self.enable();
        let began = Instant::now();
        let wait = timeout != Some(Duration::ZERO) && self.ring.completion().is_empty();
        // Before a look-out everything is handed over.
        if wait && self.spin.is_worth_it() && (self.ring.submission().is_empty() || self.ring.submit().is_ok()) {
            let ring = &mut self.ring;
            let ready = || {
                let submission = ring.submission();
                let due = submission.taskrun() || submission.cq_overflow();
                drop(submission);
                due || !ring.completion().is_empty()
            };
            if self.spin.look_out(began, ready) {
                self.spin.waited(began.elapsed());
                return self.enter_kernel(Some(Duration::ZERO));
            }
        }
        self.enter_kernel(timeout);
        if wait {
            self.spin.waited(began.elapsed());
        }
    }

    fn enter_kernel(&mut self, timeout: Option<Duration>) {
        let mut submission = self.ring.submission();
        let idle = submission.is_empty() && !submission.taskrun() && !submission.cq_overflow();
        submission.sync();
        drop(submission);
        let wait = timeout != Some(Duration::ZERO) && self.ring.completion().is_empty();
        let done = match timeout {
            _ if !wait && idle => return,
            _ if !wait => self.ring.submit(),
            None => self.ring.submit_and_wait(1),
            Some(timeout) => {
                let timeout = Timespec::from(timeout);
                self.ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&timeout))
            }
        };
        // ETIME: the time is over. EINTR: a signal, whose handler may have left work. EAGAIN and
        // EBUSY as in `submit`; the caller comes again.
        match done.map_err(|error| (Errno::from_io_error(&error), error)) {
            Ok(_) | Err((Some(Errno::TIME | Errno::INTR), _)) => {}
            Err((Some(Errno::AGAIN | Errno::BUSY), _)) => std::thread::yield_now(),
            Err((Some(Errno::EXIST), _)) => {
                panic!("bug: a reactor is driven by another thread than the one that submitted first")
            }
            Err((_, error)) => panic!("bug: io_uring_enter: {error}"),
        }
    }

    fn enable(&mut self) {
        if !std::mem::replace(&mut self.enabled, true) {
            self.ring.submitter().register_enable_rings().expect("a ring made disabled can be enabled");
            // Before Linux 5.15 there are four for each processor, and a device that hangs may have
            // them all.
            let _ = self.ring.submitter().register_iowq_max_workers(&mut [IO_WORKERS_MAX, 0]);
        }
    }

    /// Gives the kernel everything queued.
    fn submit(&mut self) {
        self.enable();
        loop {
            match self.ring.submit() {
                Ok(_) if self.ring.submission().is_empty() => return,
                Ok(_) => {}
                // EAGAIN: the kernel is short of memory; EBUSY: short of completion entries,
                // for a moment. What is queued stays queued.
                Err(error) => match Errno::from_io_error(&error) {
                    Some(Errno::INTR | Errno::AGAIN | Errno::BUSY) => std::thread::yield_now(),
                    Some(Errno::EXIST) => {
                        panic!("bug: a reactor is driven by another thread than the one that submitted first")
                    }
                    _ => panic!("bug: io_uring_enter: {error}"),
                },
            }
        }
    }

    /// Passes everything that is posted to `end`.
    fn reap(&mut self, end: &mut dyn FnMut(u32, Done)) {
        loop {
            let next = self.ring.completion().next();
            let Some(completion) = next else { return };
            match completion.user_data() {
                WATCH => (self.watching, self.readable) = (false, true),
                WATCH_SIDE => {
                    self.watching_side = false;
                    for (device, done) in self.side.reap() {
                        self.side_in_flight -= 1;
                        end(device, done);
                    }
                }
                number => self.ended(number as u32, completion.result(), end),
            }
        }
    }

    /// The kernel has done a step of the job in this slot.
    fn ended(&mut self, number: u32, outcome: i32, end: &mut dyn FnMut(u32, Done)) {
        let job = self.slots[number as usize].as_mut().expect("a completion belongs to a job in flight");
        match job.advance(u32::try_from(outcome).map_err(|_| Errno::from_raw_os_error(-outcome))) {
            Some(result) => {
                end(job.device, Done { token: job.token, result });
                self.slots[number as usize] = None;
                self.free.push(number);
            }
            None => self.push_step(number),
        }
    }

    /// Moves a job from its slot to the side thread.
    fn start_aside(&mut self, number: u32) {
        self.side.start(self.slots[number as usize].take().into_iter());
        self.side_in_flight += 1;
        self.free.push(number);
    }

    /// Counts jobs that have not ended, but for those that wait for a slot.
    pub(super) fn in_flight(&self) -> usize {
        self.in_ring() + self.side.in_flight()
    }

    fn in_ring(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

impl Drop for Uring {
    /// Waits for jobs that the kernel has; jobs that it has not got are dropped.
    fn drop(&mut self) {
        self.backlog.clear();
        if self.abandoned && self.in_ring() > 0 {
            // Memory that the kernel may still use is never given back.
            return;
        }
        while self.enabled && self.in_ring() > 0 {
            match self.ring.submit_and_wait(1).map_err(|error| Errno::from_io_error(&error)) {
                Ok(_) | Err(Some(Errno::INTR | Errno::AGAIN | Errno::BUSY)) => self.reap(&mut |_, _| {}),
                // Another thread's ring: the kernel will cancel in its own time, so the memory
                // of the jobs in flight is never given back.
                Err(_) => return,
            }
        }
        // SAFETY: nothing is in flight any more, and the field is not used again.
        unsafe { ManuallyDrop::drop(&mut self.slots) };
    }
}

impl std::fmt::Debug for Uring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Uring").field("in_flight", &self.in_flight()).field("backlog", &self.backlog.len()).finish()
    }
}

/// Makes a ring with the best flags this kernel knows. Completions are posted when we ask (6.1), or
/// at least without interrupting us (5.19), or anyhow (5.11).
fn build() -> io::Result<IoUring> {
    let mut refused = None;
    for flags in [2, 1, 0] {
        let mut builder = IoUring::builder();
        builder.dontfork().setup_r_disabled().setup_cqsize(COMPLETIONS);
        match flags {
            2 => builder.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag(),
            1 => builder.setup_coop_taskrun().setup_taskrun_flag(),
            _ => &mut builder,
        };
        match builder.build(SUBMISSIONS) {
            Ok(ring) if ring.params().is_feature_ext_arg() => return Ok(ring),
            Ok(_) => return Err(io::Error::other("this kernel's io_uring can't wait with a timeout (5.11 can)")),
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => refused = Some(error),
            Err(error) => return Err(error),
        }
    }
    Err(refused.unwrap_or_else(|| io::ErrorKind::Unsupported.into()))
}

/// The submission of a step, on a registered file (`device`) or a plain one.
fn entry(step: Step, device: Option<u32>, fd: RawFd, buffer: Option<u16>) -> squeue::Entry {
    macro_rules! on_file {
        (|$file:ident| $build:expr) => {
            match device {
                Some(number) => {
                    let $file = Fixed(number);
                    $build
                }
                None => {
                    let $file = Fd(fd);
                    $build
                }
            }
        };
    }
    match (step, buffer) {
        (Step::Read { offset, len, to }, Some(buffer)) => {
            on_file!(|file| opcode::ReadFixed::new(file, to.as_ptr(), len, buffer).offset(offset).build())
        }
        (Step::Read { offset, len, to }, None) => {
            on_file!(|file| opcode::Read::new(file, to.as_ptr(), len).offset(offset).build())
        }
        (Step::Write { offset, len, from }, Some(buffer)) => {
            on_file!(|file| opcode::WriteFixed::new(file, from.as_ptr(), len, buffer).offset(offset).build())
        }
        (Step::Write { offset, len, from }, None) => {
            on_file!(|file| opcode::Write::new(file, from.as_ptr(), len).offset(offset).build())
        }
        (Step::SyncData, _) => on_file!(|file| opcode::Fsync::new(file).flags(FsyncFlags::DATASYNC).build()),
        (Step::Fallocate { mode, offset, len }, _) => {
            on_file!(|file| opcode::Fallocate::new(file, len).offset(offset).mode(mode.bits() as i32).build())
        }
        (Step::BlkDiscard { .. } | Step::Map { .. }, _) => unreachable!("the side thread does this"),
    }
}
