// SPDX-License-Identifier: MIT OR Apache-2.0
//! The engine's work with buffers: copies, checksums, and the lanes' work at the same time.
#![expect(unsafe_code, reason = "payload is reached through raw pointers; every block has its SAFETY comment")]

use flashfront_engine::{Buf, LaneJob, Memory, Span};

use super::Arena;
use super::caches::{self, prefetch};
use super::classes::{CLASSES, class_bytes, class_of};
use super::used::Pool;

impl Memory for Arena {
    /// # Panics
    /// If the engine holds more than the arena's limit: a bug, or a limit set too low.
    fn alloc(&mut self, bytes: u32) -> Buf {
        // At the bound a larger free buffer will do: `free` knows the size by the chunk.
        let buf = (class_of(bytes)..CLASSES).find_map(|class| self.take(Pool::Engine, class));
        buf.unwrap_or_else(|| {
            panic!(
                "bug: the engine asks for {bytes} bytes but all {} bytes of the arena are in use ({} allocated)",
                self.limit_bytes(),
                self.allocated_bytes
            )
        })
    }

    fn free(&mut self, buf: Buf) {
        self.unfenced.end(buf);
        let place = self.place_of(buf);
        if place >= self.uses.len() {
            return self.free_elsewhere(buf);
        }
        if self.quarantine.keeps(buf) {
            return;
        }
        let used = &mut self.uses[place];
        #[cfg(debug_assertions)]
        {
            assert!(used.is_live(buf), "bug: {buf:?} is freed twice, or was never allocated");
            used.flip(buf);
        }
        used.live -= 1;
        self.empty_chunks += usize::from(used.live == 0);
        self.allocated_bytes -= u64::from(class_bytes(usize::from(used.class)));
        self.free[used.pool as usize][usize::from(used.class)].push(buf.0);
        self.tell_borrowers();
    }

    fn bytes(&self, span: Span) -> &[u8] {
        // SAFETY: the range is mapped (`ptr`), initialised (zero-filled by the kernel) and, by the
        // rule at the top, not being written.
        unsafe { std::slice::from_raw_parts(self.ptr(span).as_ptr(), span.len as usize) }
    }

    fn bytes_mut(&mut self, span: Span) -> &mut [u8] {
        // SAFETY: as in `bytes`; `&mut self` excludes any other reference into the arena.
        unsafe { std::slice::from_raw_parts_mut(self.ptr(span).as_ptr(), span.len as usize) }
    }

    fn copy(&mut self, from: Span, to: Buf, offset: u32) {
        if self.bare {
            return;
        }
        self.unfenced.end(to);
        let (source, target) = self.both(from, Span::new(to, offset, from.len));
        // SAFETY: both ranges are mapped and, by the contract of `Memory::copy`, don't overlap.
        unsafe { target.copy_from_nonoverlapping(source, from.len as usize) };
    }

    // Copies past the caches. `copy` is for data that is read again soon, and stays in the caches.
    //
    // On an EPYC in process on a file a write took 1.75 us instead of 2.46. On null devices nothing
    // takes the buffer in between. There the ordinary copy wins, 0.70 to 0.87.
    fn copy_summed(&mut self, from: Span, to: Buf, offset: u32) -> u32 {
        if self.bare {
            return 0;
        }
        let sum = self.checksum(from);
        let to = Span::new(to, offset, from.len);
        let (source, target) = self.both(from, to);
        self.unfenced.begin(to);
        // SAFETY: both ranges are mapped and, by the contract of `Memory::copy_summed`, don't
        // overlap.
        // The fence comes before any other access, as each begins with `ptr`. An I/O's does, too:
        // its address is taken when a commit is submitted, after the last copy into it. A buffer
        // that is freed, and a buffer that two arenas know, are fenced at once.
        // The fence must be this thread's own. An arena that another thread gets goes through a
        // lock or the kernel, and locked instructions end streaming stores as well (Intel's manual
        // vol. 3, "Buffering of Write Combining Memory Locations"; AMD's vol. 2, "Write-Buffer
        // Emptying Conditions").
        unsafe { caches::copy_past(source.as_ptr(), target.as_ptr(), from.len as usize) };
        if self.is_shared(to.buf()) {
            self.unfenced.end(to.buf());
        }
        sum
    }

    fn zero(&mut self, span: Span) {
        if !self.bare {
            self.bytes_mut(span).fill(0);
        }
    }

    fn checksum(&self, span: Span) -> u32 {
        if self.bare {
            return 0;
        }
        // The catalogue's CRC-32/ISCSI is CRC-32C. crc-fast takes 47 ns per 4 KiB on an idle core
        // with AVX-512, the crc32c crate 160. On a busy core they take 182 and 288.
        crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, self.bytes(span)) as u32
    }

    fn expect_line(&self, at: *const u8) {
        prefetch(at);
    }

    fn expect_payload(&self, span: Span) {
        caches::prefetch_begin(self.address(span));
    }

    fn apart_from(&self) -> Option<u64> {
        self.apart.as_ref().and_then(|apart| apart.least_blocks())
    }

    fn apart_threads(&self) -> usize {
        self.apart.as_ref().map_or(1, |apart| apart.threads())
    }

    fn apart(&mut self, jobs: &mut Vec<LaneJob>) {
        // The lanes' threads will look at these buffers.
        self.unfenced.end_all();
        let apart = self.apart.as_mut().expect("bug: there are no lanes to work apart");
        apart.share(jobs, &self.unfenced);
        for buf in apart.strays() {
            self.free(buf);
        }
    }
}
