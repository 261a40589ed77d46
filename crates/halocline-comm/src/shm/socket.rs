//! Unix sockets between the ranks of a job: one connection for each direction of a pair of ranks,
//! made by the sender at its first message, with a [`Ring`] that takes the messages without memory once the receiver reads it.

use super::frame::{self, Announced, Decoder, Frame, MAX_SEGMENTS};
use super::job::JobError;
use super::ring::Ring;
use crate::buffers;
use crate::error::CommError;
use crate::inbox::Tag;
use crate::segment::Segment;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::{Errno, IoSlice, IoSliceMut};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use rustix::process::Pid;
use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::time::Duration;

/// The tag of the first frame of a connection, which names the sender.
const HELLO: Tag = Tag { operation: u64::MAX, round: u64::MAX };
/// The tag of the frame that brings the sender's ring.
pub(super) const RING: Tag = Tag { operation: u64::MAX, round: u64::MAX - 1 };

const READ_BYTES: usize = 64 * 1024;

fn address(token: &str, rank: usize) -> Result<SocketAddrUnix, CommError> {
    abstract_address(&format!("halocline-{token}-{rank}"))
}

/// The address of a socket by an abstract name, which vanishes with the process, however it ends.
pub(super) fn abstract_address(name: &str) -> Result<SocketAddrUnix, CommError> {
    SocketAddrUnix::new_abstract_name(name.as_bytes())
        .map_err(|errno| CommError::System { what: "name its socket", errno })
}

/// A stream socket.
pub(super) fn socket(flags: SocketFlags) -> Result<OwnedFd, CommError> {
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags | SocketFlags::CLOEXEC, None)
        .map_err(|errno| CommError::System { what: "create a socket", errno })
}

/// The listening socket of this rank.
pub(super) fn listen(token: &str, rank: usize) -> Result<OwnedFd, CommError> {
    let listener = socket(SocketFlags::NONBLOCK)?;
    let fail = |what| move |errno| CommError::System { what, errno };
    rustix::net::bind(&listener, &address(token, rank)?).map_err(|errno| match errno {
        Errno::ADDRINUSE => JobError::Taken { rank }.into(),
        errno => fail("bind its socket")(errno),
    })?;
    rustix::net::listen(&listener, 4096).map_err(fail("listen on its socket"))?;
    Ok(listener)
}

/// The sending end of a connection, with the messages that the socket has not accepted.
pub(super) struct Outgoing {
    socket: OwnedFd,
    queue: VecDeque<Unsent>,
    /// `None`: this process cannot have more memory or descriptors.
    ring: Option<Ring>,
    /// Bytes that were written to the ring.
    written: u64,
    /// Messages so far.
    sequence: u64,
    /// The receiver has closed the connection, or never accepted it.
    broken: bool,
    /// How often the watch thread has checked the reason.
    pub(super) looks: u32,
    /// Whether the watch thread writes again when the socket accepts more.
    pub(super) awaited: bool,
}

struct Unsent {
    bytes: Vec<u8>,
    sent: usize,
    /// Memory whose descriptors go with the first byte.
    segments: Vec<Arc<Segment>>,
}

impl Outgoing {
    /// Connects to a rank and queues the first frame.
    pub(super) fn connect(token: &str, me: usize, to: usize) -> Result<Self, CommError> {
        let mut outgoing = Self::over(socket(SocketFlags::empty())?);
        match rustix::net::connect(&outgoing.socket, &address(token, to)?) {
            Ok(()) => {
                outgoing.queue(HELLO, &hello(token, me), &[])?;
                outgoing.ring = Ring::create().ok();
                let memory = outgoing.ring.as_ref().map(|ring| Arc::clone(ring.memory()));
                if let Some(memory) = memory {
                    outgoing.queue(RING, &[], &[memory])?;
                }
            }
            // The rank does not listen any more: it is gone.
            Err(Errno::CONNREFUSED) => outgoing.broken = true,
            Err(errno) => return Err(CommError::System { what: "connect to a peer's socket", errno }),
        }
        Ok(outgoing)
    }

    fn over(socket: OwnedFd) -> Self {
        let (queue, ring) = (VecDeque::new(), None);
        Self { socket, queue, ring, written: 0, sequence: 0, broken: false, looks: 0, awaited: false }
    }

    /// Puts a message into the ring, or queues it for the socket. True if the receiver can read it at once.
    pub(super) fn push(
        &mut self,
        tag: Tag,
        payload: &[u8],
        segments: &[Arc<Segment>],
    ) -> Result<bool, CommError> {
        let ring = self.ring.as_ref().filter(|ring| segments.is_empty() && ring.is_mapped());
        let in_ring = ring.is_some_and(|ring| ring.push(&mut self.written, self.sequence, tag, payload));
        if !in_ring {
            self.queue(tag, payload, segments)?;
        }
        self.sequence += 1;
        Ok(in_ring)
    }

    /// Queues a frame.
    fn queue(&mut self, tag: Tag, payload: &[u8], segments: &[Arc<Segment>]) -> Result<(), CommError> {
        if segments.len() > MAX_SEGMENTS {
            return Err(CommError::System { what: "send that many segments at once", errno: Errno::TOOBIG });
        }
        let announced: Vec<_> =
            segments.iter().map(|s| Announced { id: s.id(), len: s.announced() }).collect();
        let bytes = frame::encode(self.sequence, tag, &announced, payload);
        self.queue.push_back(Unsent { bytes, sent: 0, segments: segments.to_vec() });
        Ok(())
    }

    /// Writes as much as the socket accepts.
    pub(super) fn flush(&mut self) -> Flushed {
        if self.broken {
            self.queue.clear();
            return Flushed::Broken;
        }
        while let Some(unsent) = self.queue.front_mut() {
            match unsent.write(self.socket.as_fd()) {
                Ok(()) if unsent.sent == unsent.bytes.len() => {
                    buffers::put(std::mem::take(&mut unsent.bytes));
                    self.queue.pop_front();
                }
                Ok(()) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Flushed::Blocked,
                Err(Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN | Errno::CONNREFUSED) => {
                    self.queue.clear();
                    self.broken = true;
                    return Flushed::Broken;
                }
                // Too many descriptors in flight, no buffers, no memory: a temporary error.
                Err(errno) => return Flushed::Refused(errno),
            }
        }
        Flushed::All
    }

    /// Records that the receiver has closed the connection.
    pub(super) fn hung_up(&mut self) {
        self.broken = true;
    }

    /// As [`Outgoing::flush`], but waits up to `limit` for the receiver to read.
    pub(super) fn flush_within(&mut self, limit: Duration) {
        loop {
            let why = match self.flush() {
                Flushed::All | Flushed::Broken => return,
                Flushed::Refused(errno) => errno.to_string(),
                Flushed::Blocked => {
                    let (tv_sec, tv_nsec) = (limit.as_secs() as i64, limit.subsec_nanos().into());
                    let mut poll = [PollFd::new(&self.socket, PollFlags::OUT)];
                    match rustix::event::poll(&mut poll, Some(&Timespec { tv_sec, tv_nsec })) {
                        Ok(0) => "it does not read".to_owned(),
                        Ok(_) | Err(Errno::INTR) => continue,
                        Err(errno) => errno.to_string(),
                    }
                }
            };
            return tracing::warn!("messages to a peer are lost: {why}");
        }
    }
}

/// The state of a queue after a flush.
pub(super) enum Flushed {
    /// The socket has accepted all messages.
    All,
    /// The socket accepts more once the receiver has read.
    Blocked,
    /// A temporary error of the kernel.
    Refused(Errno),
    /// The receiver has closed the connection.
    Broken,
}

impl AsFd for Outgoing {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Unsent {
    fn write(&mut self, socket: BorrowedFd<'_>) -> rustix::io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_SEGMENTS))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let fds: Vec<_> = self.segments.iter().filter_map(|segment| segment.descriptor()).collect();
        if self.sent == 0 && !fds.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(&fds)) {
            return Err(Errno::TOOBIG);
        }
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        self.sent +=
            rustix::net::sendmsg(socket, &[IoSlice::new(&self.bytes[self.sent..])], &mut ancillary, flags)?;
        Ok(())
    }
}

fn hello(token: &str, me: usize) -> Vec<u8> {
    let mut hello = (me as u64).to_le_bytes().to_vec();
    hello.extend_from_slice(token.as_bytes());
    hello
}

/// The process at the other end of a connection, by the kernel; an error if it is of another user.
pub(super) fn peer_of(socket: BorrowedFd<'_>) -> rustix::io::Result<Pid> {
    let who = rustix::net::sockopt::socket_peercred(socket)?;
    if who.uid == rustix::process::geteuid() { Ok(who.pid) } else { Err(Errno::PERM) }
}

/// The receiving end of a connection.
pub(super) struct Incoming {
    socket: OwnedFd,
    decoder: Decoder,
    /// The descriptors of frames that announce segments, in their order.
    came: VecDeque<Came>,
    /// The sender, known from its first frame.
    pub(super) peer: Option<usize>,
}

/// The descriptors of one frame: the kernel never returns those of two at once.
struct Came {
    descriptors: Vec<OwnedFd>,
    /// Some are missing: this process may not open more.
    cut: bool,
}

/// The state of a connection after a read.
pub(super) enum Read {
    /// All bytes were read; more may come.
    Open,
    /// The sender has closed it.
    Closed,
}

impl Incoming {
    pub(super) fn new(socket: OwnedFd) -> Self {
        Self { socket, decoder: Decoder::default(), came: VecDeque::new(), peer: None }
    }

    /// The process at the other end.
    pub(super) fn process(&self) -> rustix::io::Result<Pid> {
        peer_of(self.as_fd())
    }

    /// Reads all bytes and passes each frame, with its descriptors, to `deliver`; only the first ones if this
    /// process may not open more. After an error the connection is unusable.
    pub(super) fn read(
        &mut self,
        mut deliver: impl FnMut(&mut Option<usize>, Frame, Vec<OwnedFd>) -> Result<(), String>,
    ) -> Result<Read, String> {
        let mut buffer = vec![0; READ_BYTES];
        loop {
            let count = match self.receive(&mut buffer) {
                Ok(0) | Err(Errno::CONNRESET) => return Ok(Read::Closed),
                Ok(count) => count,
                Err(Errno::AGAIN) => return Ok(Read::Open),
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(errno.to_string()),
            };
            self.decoder.feed(&buffer[..count]);
            while let Some(frame) = self.decoder.next().map_err(super::with_remedy)? {
                let descriptors = self.descriptors_of(&frame)?;
                deliver(&mut self.peer, frame, descriptors)?;
            }
        }
    }

    fn descriptors_of(&mut self, frame: &Frame) -> Result<Vec<OwnedFd>, String> {
        let announced = frame.segments.len();
        let none = Came { descriptors: Vec::new(), cut: false };
        let came = if announced == 0 { none } else { self.came.pop_front().unwrap_or(none) };
        match came.descriptors.len() {
            count if count == announced || came.cut && count < announced => Ok(came.descriptors),
            count => Err(format!("{announced} segments announced, {count} came")),
        }
    }

    fn receive(&mut self, buffer: &mut [u8]) -> rustix::io::Result<usize> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let received =
            rustix::net::recvmsg(&self.socket, &mut [IoSliceMut::new(buffer)], &mut ancillary, flags)?;
        let cut = received.flags.contains(ReturnFlags::CTRUNC);
        let mut descriptors = Vec::new();
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = message {
                descriptors.extend(fds);
            }
        }
        if cut || !descriptors.is_empty() {
            self.came.push_back(Came { descriptors, cut });
        }
        Ok(received.bytes)
    }
}

impl AsFd for Incoming {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The rank that a correct first frame claims.
pub(super) fn check_hello(frame: &Frame, token: &str) -> Option<usize> {
    let (rank, theirs) = frame.payload.split_first_chunk::<8>()?;
    let is_hello = frame.tag == HELLO && frame.segments.is_empty() && theirs == token.as_bytes();
    is_hello.then(|| usize::try_from(u64::from_le_bytes(*rank)).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fd::AsRawFd;
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    fn connection() -> (Outgoing, Incoming) {
        let (sends, reads) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
                .unwrap();
        (Outgoing::over(sends), Incoming::new(reads))
    }

    fn tag(operation: u64) -> Tag {
        Tag { operation, round: 0 }
    }

    /// The operations of received frames, with their descriptors.
    fn read(incoming: &mut Incoming) -> Result<Vec<(u64, Vec<OwnedFd>)>, String> {
        let mut frames = Vec::new();
        incoming.read(|_, frame, descriptors| {
            frames.push((frame.tag.operation, descriptors));
            Ok(())
        })?;
        Ok(frames)
    }

    #[test]
    fn a_frame_without_its_announced_descriptors_ends_the_connection() {
        let segment = Segment::shared(4096).unwrap();
        let announced = |count| vec![Announced { id: 1, len: 4096 }; count];
        for (says, brings) in [(2, 1), (1, 2), (1, 0)] {
            let (mut outgoing, mut incoming) = connection();
            let bytes = frame::encode(0, tag(1), &announced(says), &[]);
            outgoing.queue.push_back(Unsent { bytes, sent: 0, segments: vec![segment.clone(); brings] });
            assert!(matches!(outgoing.flush(), Flushed::All));
            let error = read(&mut incoming).unwrap_err();
            assert_eq!(error, format!("{says} segments announced, {brings} came"));
        }
    }

    #[test]
    fn a_process_that_inherited_the_rank_of_another_gets_an_error_that_says_so() {
        let token = format!("taken-{}", std::process::id());
        let _first = listen(&token, 3).unwrap();
        let error = listen(&token, 3).unwrap_err();
        assert!(matches!(error, CommError::Job(JobError::Taken { rank: 3 })), "{error}");
        assert!(error.to_string().contains("inherited"), "{error}");
    }

    #[test]
    fn frames_come_with_fewer_descriptors_if_none_is_left() {
        let said = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--ignored", "shm::socket::tests::run_out_of_descriptors"])
            .output()
            .unwrap();
        assert!(
            said.status.success() && String::from_utf8_lossy(&said.stdout).contains("1 passed"),
            "{said:?}"
        );
    }

    #[test]
    #[ignore = "the other test runs it, in a process of its own"]
    fn run_out_of_descriptors() {
        let segments: Vec<_> = (0..3).map(|_| Segment::shared(4096).unwrap()).collect();
        let (mut outgoing, mut incoming) = connection();
        // More than is read at once, so that the second frame's descriptors come with the end of the first.
        outgoing.push(tag(1), &[7; READ_BYTES + 5], &segments).unwrap();
        outgoing.push(tag(2), &[], &segments[..2]).unwrap();
        outgoing.push(tag(3), b"none", &[]).unwrap();
        assert!(matches!(outgoing.flush(), Flushed::All));
        let before = getrlimit(Resource::Nofile);
        let free = u64::from(outgoing.socket.try_clone().unwrap().as_raw_fd().unsigned_abs());
        setrlimit(Resource::Nofile, Rlimit { current: Some(free + 1), ..before }).unwrap();
        let came = read(&mut incoming).unwrap();
        let counts: Vec<_> =
            came.iter().map(|(operation, descriptors)| (*operation, descriptors.len())).collect();
        assert_eq!(counts, [(1, 1), (2, 0), (3, 0)]);
        drop(came);
        setrlimit(Resource::Nofile, before).unwrap();
        outgoing.push(tag(4), &[], &segments).unwrap();
        assert!(matches!(outgoing.flush(), Flushed::All));
        let came = read(&mut incoming).unwrap();
        assert_eq!(came.iter().map(|(operation, fds)| (*operation, fds.len())).collect::<Vec<_>>(), [(4, 3)]);
    }
}
