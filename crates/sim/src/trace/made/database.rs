// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes an order database with a write-ahead log and checkpoints.
//!
//! Published figures:
//!
//! - An order asks for one customer, and for five to fifteen items and their stock, chosen by
//!   NURand. One in ten transactions looks at old orders. (TPC-C, standard specification 5.11,
//!   clauses 2.1.6 and 2.4; its skew of pages: Leutenegger and Dias, SIGMOD 1993.)
//! - A checkpoint comes every 5 minutes. It is spread over 0.9 of that time, in the order of
//!   places. A page that is changed for the first time after it is in the log as a whole. The log
//!   has files of 16 MiB, which are used anew. (PostgreSQL 16, "WAL configuration":
//!   `checkpoint_timeout`, `checkpoint_completion_target`, `full_page_writes`, `wal_segment_size`.)
//!
//! Guesses: the sizes of the tables and of the buffer pool (an eighth of them), and 24 orders a
//! second for 40 minutes. The seed changes the size of the buffer pool.

use std::collections::{BTreeSet, HashMap, HashSet};

use flashfront_device::Rng;

use super::maker::{Asked, Maker, Seed};
use crate::zipf::Scatter;

/// Blocks of 4 KiB in a page.
const PAGE: u64 = 2;
const POOL_PAGES: u64 = 12_000;
const ITEMS: u64 = 100_000;
const CUSTOMERS: u64 = 60_000;
const STOCK_PAGES: u64 = 50_000;
const CUSTOMER_PAGES: u64 = 20_000;
const ITEM_PAGES: u64 = 1500;
/// Pages of orders. Orders are appended, and pages of the oldest orders are used again.
const ORDER_PAGES: u64 = 24_000;

const STOCK: u64 = 0;
const CUSTOMER: u64 = STOCK + STOCK_PAGES;
const ITEM: u64 = CUSTOMER + CUSTOMER_PAGES;
const ORDER: u64 = ITEM + ITEM_PAGES;
const TABLES: u64 = ORDER + ORDER_PAGES;

/// The log has eight files of 16 MiB.
const LOG_BYTES: u64 = 8 * (16 << 20);
const PAGE_BYTES: u64 = PAGE * 4096;
/// Bytes in the log for a change of a row, and for the end of a transaction.
const CHANGE_BYTES: u64 = 220;

const ORDERS_A_SECOND: u64 = 24;
const CHECKPOINT_US: u64 = 300 * 1_000_000;
const END_US: u64 = 40 * 60 * 1_000_000;

pub(super) struct Database {
    rng: Rng,
    now_us: u64,
    stock: Scatter,
    customers: Scatter,
    /// The number of pages that fit into the pool.
    pool_pages: usize,
    /// The time of each page's last use, by page. `used` has the pages in that order.
    pool: HashMap<u64, u64>,
    used: BTreeSet<(u64, u64)>,
    clock: u64,
    dirty: BTreeSet<u64>,
    /// Pages that are in the log as a whole since the last checkpoint.
    whole: HashSet<u64>,
    /// Pages that the checkpoint is still to write, the last first. `to_write_at_first` is their
    /// number at its beginning.
    to_write: Vec<u64>,
    to_write_at_first: usize,
    checkpoint_us: u64,
    /// Bytes of the log so far. `log_written` are the bytes that are on the disk.
    log: u64,
    log_written: u64,
    orders: u64,
}

impl Database {
    pub(super) fn new(seed: &mut Seed) -> Self {
        Self {
            rng: seed.rng(511),
            now_us: 0,
            stock: Scatter::new(ITEMS),
            customers: Scatter::new(CUSTOMERS),
            pool_pages: seed.about(POOL_PAGES) as usize,
            pool: HashMap::new(),
            used: BTreeSet::new(),
            clock: 0,
            dirty: BTreeSet::new(),
            whole: HashSet::new(),
            to_write: Vec::new(),
            to_write_at_first: 0,
            checkpoint_us: 0,
            log: 0,
            log_written: 0,
            orders: 0,
        }
    }

    /// TPC-C's non-uniform random number below `n`.
    fn nurand(&mut self, a: u64, n: u64) -> u64 {
        (self.rng.below(a + 1) | self.rng.below(n)) % n
    }

    /// Uses a page. If the pool does not have it, it is read, and another page leaves.
    fn page(&mut self, page: u64, change: bool, asked: &mut Asked) {
        self.clock += 1;
        match self.pool.insert(page, self.clock) {
            Some(before) => _ = self.used.remove(&(before, page)),
            None => asked.read(page * PAGE, PAGE),
        }
        self.used.insert((self.clock, page));
        if self.pool.len() > self.pool_pages
            && let Some((_, oldest)) = self.used.pop_first()
        {
            self.pool.remove(&oldest);
            if self.dirty.remove(&oldest) {
                asked.write(oldest * PAGE, PAGE);
            }
        }
        if change {
            self.dirty.insert(page);
            self.log += if self.whole.insert(page) { PAGE_BYTES } else { CHANGE_BYTES };
        }
    }

    /// Writes the log. Its last block is written each time it grows.
    fn commit(&mut self, asked: &mut Asked) {
        self.log += CHANGE_BYTES;
        let mut block = self.log_written / 4096;
        let end = self.log.div_ceil(4096);
        while block < end {
            let at = block % (LOG_BYTES / 4096);
            let blocks = (end - block).min(LOG_BYTES / 4096 - at);
            asked.write(TABLES * PAGE + at, blocks);
            block += blocks;
        }
        self.log_written = self.log;
    }

    /// Begins a checkpoint, or goes on with it.
    fn checkpoint(&mut self, asked: &mut Asked) {
        if self.now_us >= self.checkpoint_us + CHECKPOINT_US {
            self.checkpoint_us += CHECKPOINT_US;
            self.whole.clear();
            self.to_write = self.dirty.iter().rev().copied().collect();
            self.to_write_at_first = self.to_write.len();
        }
        let passed = (self.now_us - self.checkpoint_us) as f64 / (0.9 * CHECKPOINT_US as f64);
        let left = (self.to_write_at_first as f64 * (1.0 - passed)).max(0.0) as usize;
        while self.to_write.len() > left
            && let Some(page) = self.to_write.pop()
        {
            if self.dirty.remove(&page) {
                asked.write(page * PAGE, PAGE);
            }
        }
    }

    fn order(&mut self, asked: &mut Asked) {
        let customer = self.nurand(1023, CUSTOMERS);
        let customer = self.customers.place(customer);
        self.page(CUSTOMER + customer * CUSTOMER_PAGES / CUSTOMERS, true, asked);
        for _ in 0..5 + self.rng.below(11) {
            let item = self.nurand(8191, ITEMS);
            self.page(ITEM + item * ITEM_PAGES / ITEMS, false, asked);
            let stock = self.stock.place(item);
            self.page(STOCK + stock * STOCK_PAGES / ITEMS, true, asked);
        }
        // A page has about eight orders with their lines.
        self.page(ORDER + self.orders / 8 % ORDER_PAGES, true, asked);
        self.orders += 1;
    }

    /// Looks at one of the last orders.
    fn look(&mut self, asked: &mut Asked) {
        let customer = self.nurand(1023, CUSTOMERS);
        self.page(CUSTOMER + self.customers.place(customer) * CUSTOMER_PAGES / CUSTOMERS, false, asked);
        let ago = self.rng.below(1 + self.orders.min(3000));
        self.page(ORDER + (self.orders - ago) / 8 % ORDER_PAGES, false, asked);
    }
}

impl Maker for Database {
    fn act(&mut self, asked: &mut Asked) -> bool {
        self.now_us += 1 + self.rng.below(2 * 1_000_000 / ORDERS_A_SECOND);
        asked.time_us = self.now_us;
        self.checkpoint(asked);
        if self.rng.below(10) == 0 {
            self.look(asked);
        } else {
            self.order(asked);
            self.commit(asked);
        }
        self.now_us < END_US
    }
}
