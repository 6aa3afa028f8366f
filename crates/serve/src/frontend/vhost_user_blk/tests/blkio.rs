// SPDX-License-Identifier: MIT OR Apache-2.0
//! libblkio's driver, which others wrote, in this process: no virtual machine, no privileges.

use blkio::{Blkio, Blkioq, Completion, MemoryRegion, ReqFlags};

use super::requests::serve;
use crate::rig::{Bench, ORIGIN_BYTES};

const BLOCK: usize = 4096;
const BLOCKS: usize = 256;

struct Disk {
    blkio: Blkio,
    queues: Vec<Blkioq>,
    region: MemoryRegion,
}

impl Disk {
    fn open(bench: &Bench, queues: i32) -> Self {
        let mut blkio = Blkio::new("virtio-blk-vhost-user").unwrap();
        blkio.set_str("path", bench.path("guest").to_str().unwrap()).unwrap();
        blkio.connect().unwrap();
        assert_eq!(blkio.get_u64("capacity").unwrap(), ORIGIN_BYTES);
        blkio.set_i32("num-queues", queues).unwrap();
        let queues = blkio.start().unwrap().queues;
        let region = blkio.alloc_mem_region(BLOCK * BLOCKS).unwrap();
        blkio.map_mem_region(&region).unwrap();
        Self { blkio, queues, region }
    }

    fn at(&self, block: usize) -> *mut u8 {
        assert!(block < BLOCKS);
        (self.region.addr as *mut u8).wrapping_add(block * BLOCK)
    }

    #[expect(unsafe_code, reason = "libblkio's memory is an address")]
    fn block(&mut self, block: usize) -> &mut [u8] {
        // SAFETY: inside the region, which lives as long as `self`; no request is in flight.
        unsafe { std::slice::from_raw_parts_mut(self.at(block), BLOCK) }
    }

    /// Waits for this many answers, which must be good.
    fn finish(&mut self, queue: usize, count: usize) {
        let mut done: Vec<_> = (0..count).map(|_| std::mem::MaybeUninit::<Completion>::uninit()).collect();
        let got = self.queues[queue].do_io(&mut done, count, None, None).unwrap();
        assert_eq!(got, count);
        #[expect(unsafe_code, reason = "libblkio's answers are written in place")]
        for completion in &done {
            // SAFETY: as many were written as it says.
            assert_eq!(unsafe { completion.assume_init_ref() }.ret, 0);
        }
    }
}

#[test]
fn libblkio_reads_what_it_wrote_by_several_queues() {
    let bench = Bench::formatted();
    let served = serve(&bench);
    let mut disk = Disk::open(&bench, 4);
    assert_eq!(disk.queues.len(), 4);
    let none = ReqFlags::empty();
    for block in 0..BLOCKS {
        let content = [block as u8 ^ 0xa5; BLOCK];
        disk.block(block).copy_from_slice(&content);
        let from = disk.at(block);
        disk.queues[block % 4].write((block * 3 * BLOCK) as u64, from, BLOCK, block, none);
    }
    for queue in 0..4 {
        disk.finish(queue, BLOCKS / 4);
    }
    disk.queues[0].flush(0, none);
    disk.finish(0, 1);
    for block in 0..BLOCKS {
        disk.block(block).fill(0);
        let into = disk.at(block);
        disk.queues[(block + 1) % 4].read((block * 3 * BLOCK) as u64, into, BLOCK, block, none);
    }
    for queue in 0..4 {
        disk.finish(queue, BLOCKS / 4);
    }
    for block in 0..BLOCKS {
        assert!(disk.block(block).iter().all(|byte| *byte == block as u8 ^ 0xa5), "block {block}");
    }
    disk.queues[1].write_zeroes(0, (BLOCK * 3) as u64, 0, none);
    disk.finish(1, 1);
    disk.queues[1].discard((BLOCK * 300) as u64, (BLOCK * 3) as u64, 0, none);
    disk.finish(1, 1);
    let into = disk.at(0);
    disk.queues[2].read(0, into, BLOCK * 4, 0, none);
    disk.finish(2, 1);
    assert!((0..3).all(|block| disk.block(block).iter().all(|byte| *byte == 0)));
    assert!(disk.block(3).iter().all(|byte| *byte == 0xa5 ^ 1));
    let region = disk.region;
    disk.blkio.unmap_mem_region(&region);
    drop(disk);
    served.stop();
}
