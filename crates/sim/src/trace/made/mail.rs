// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes two days of a mail server: a queue, mailboxes that grow, and a log. Nine tenths of its
//! blocks are writes.
//!
//! Published figures:
//!
//! - Nine tenths of the data that a department's mail server transfers is written. Nearly all of it
//!   goes to places that were written before, while reads go to many more places. (Koller and
//!   Rangaswami, "I/O deduplication", FAST 2010, table 1: Postfix on ext3, three weeks.)
//! - A message has 16 KiB in the mean. Each is synced when it is in the queue, and when it is in
//!   its mailbox (Filebench's `varmail`, which follows PostMark; Postfix delivers so).
//! - Demand follows the day. The kind of a file tells its life: files of the queue are soon gone,
//!   mailboxes stay. (Ellard and others, "Passive NFS tracing of email and research workloads",
//!   FAST 2003.)
//!
//! Guesses: the numbers of users and of messages, the messages of each user, the sizes of
//! mailboxes, and the server's page cache of 64 MiB. The seed changes the number of users and the
//! page cache.

use flashfront_device::Rng;

use super::files::{Files, SECOND_US, file_blocks};
use super::maker::{Asked, Maker, Seed};
use crate::zipf::{Scatter, Zipf};

const HOUR_US: u64 = 3600 * SECOND_US;
const END_US: u64 = 48 * HOUR_US;

const PAGE_CACHE_BLOCKS: u64 = 16 << 10;
const METADATA_BLOCKS: u64 = 4000;
/// The blocks of the queue. Messages are in the queue for moments, so the same blocks are used
/// again and again.
const QUEUE_BLOCKS: u64 = 600;
const LOG_BLOCKS: u64 = 3000;
const USERS: u64 = 1500;

/// A folder of messages. New messages go to the place of the oldest, which their owner has deleted.
struct Mailbox {
    from: u64,
    room: u64,
    next: u64,
    /// Blocks that came since the owner looked.
    unseen: u64,
}

pub(super) struct Mail {
    rng: Rng,
    now_us: u64,
    system: Files,
    queues: u64,
    queue: u64,
    logs: u64,
    log: u64,
    /// A block for each user. It says which messages there are, and which were read.
    indexes: u64,
    mailboxes: Vec<Mailbox>,
    who: Zipf,
    scattered: Scatter,
}

impl Mail {
    pub(super) fn new(seed: &mut Seed) -> Self {
        let mut rng = seed.rng(821);
        let system = Files::new(seed.about(PAGE_CACHE_BLOCKS), METADATA_BLOCKS);
        let users = seed.about(USERS);
        let queues = system.data();
        let logs = queues + QUEUE_BLOCKS;
        let indexes = logs + LOG_BLOCKS;
        let mut at = indexes + users;
        let mut mailboxes = Vec::new();
        for _ in 0..users {
            // The median is 400 KiB.
            let room = 16 + file_blocks(4.6, 1.0, 4096, &mut rng);
            mailboxes.push(Mailbox { from: at, room, next: rng.below(room), unseen: 0 });
            at += room;
        }
        Self {
            rng,
            now_us: 0,
            system,
            queues,
            queue: 0,
            logs,
            log: 0,
            indexes,
            mailboxes,
            who: Zipf::new(users, 0.9),
            scattered: Scatter::new(users),
        }
    }

    fn user(&mut self) -> usize {
        self.scattered.place(self.who.sample(&mut self.rng)) as usize
    }

    fn log_something(&mut self, asked: &mut Asked) {
        // A block has ten lines, and is written again with each line.
        self.system.write(self.logs + self.log / 10 % LOG_BLOCKS, 1, asked);
        self.log += 1;
    }

    /// Delivers a message: into the queue, synced, then into a mailbox, synced.
    fn deliver(&mut self, asked: &mut Asked) {
        let blocks = file_blocks(0.9, 0.8, 64, &mut self.rng);
        if self.queue + blocks > QUEUE_BLOCKS {
            self.queue = 0;
        }
        self.system.write(self.queues + self.queue, blocks, asked);
        self.queue += blocks;
        self.system.change(3, &mut self.rng);
        self.system.commit(asked);
        self.log_something(asked);
        let user = self.user();
        let mailbox = &mut self.mailboxes[user];
        let blocks = blocks.min(mailbox.room);
        if mailbox.next + blocks > mailbox.room {
            mailbox.next = 0;
        }
        self.system.write(mailbox.from + mailbox.next, blocks, asked);
        mailbox.next += blocks;
        mailbox.unseen = (mailbox.unseen + blocks).min(mailbox.next);
        self.system.write(self.indexes + user as u64, 1, asked);
        self.system.change(2, &mut self.rng);
        self.system.commit(asked);
        self.log_something(asked);
    }

    /// Lets a user look for new messages. One look in eight reads an old message, too.
    fn look(&mut self, asked: &mut Asked) {
        let user = self.user();
        self.system.look(user as u64, asked);
        self.system.read(self.indexes + user as u64, 1, asked);
        let mailbox = &mut self.mailboxes[user];
        if mailbox.unseen > 0 {
            self.system.read(mailbox.from + mailbox.next - mailbox.unseen, mailbox.unseen, asked);
            mailbox.unseen = 0;
            self.system.write(self.indexes + user as u64, 1, asked);
            self.system.change(1, &mut self.rng);
        }
        if self.rng.below(8) == 0 {
            let blocks = mailbox.room.min(32);
            let at = self.rng.below(mailbox.room - blocks + 1);
            self.system.read(mailbox.from + at, blocks, asked);
        }
        self.log_something(asked);
    }
}

impl Maker for Mail {
    fn act(&mut self, asked: &mut Asked) -> bool {
        let hour = self.now_us % (24 * HOUR_US) / HOUR_US;
        let mean_us = if (8..18).contains(&hour) { 3 * SECOND_US / 2 } else { 4 * SECOND_US };
        self.now_us += 1 + self.rng.below(2 * mean_us);
        asked.time_us = self.now_us;
        self.system.tick(asked);
        if self.rng.below(10) < 6 {
            self.deliver(asked);
        } else {
            self.look(asked);
        }
        self.now_us < END_US
    }
}
