//! Options of a bind.

use crate::check;
use crate::error::Error;
use halocline_comm::CommError;
use halocline_device::{Bytes, Stream, Variable, VariableError};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Which path links take. Devices move the bytes of device fields themselves. For `Mailbox` they stage them through host memory, for
/// `Message` too, unless MPI takes GPU memory. For device fields `Auto` takes the first possible path of: LL for small messages
/// ([`Ll`]), push, a mailbox on the receiver's device, mailbox, message.
///
/// ```
/// use halocline::{Array, BindOptions, Communicator, Decomposed, HaloExchange, LinkChoice, LinkPath, RegularGrid};
///
/// let comm = Communicator::init()?;
/// let pattern = RegularGrid::new((8, 6)).pattern(&comm, 1)?;
/// let t = Array::<f64>::zeros(&comm, &pattern.domain()?.extents())?;
/// // As between nodes, also where the ranks share memory.
/// let options = BindOptions::default().link(LinkChoice::Message);
/// let halo = HaloExchange::bind_with(&comm, [(&pattern, &t)], &options)?;
/// assert!(halo.links().all(|link| link.path == LinkPath::Message));
/// # Ok::<(), halocline::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum LinkChoice {
    /// For host fields the fastest of the paths that the memory allows, measured when binding; for device fields the first possible
    /// one of the list above.
    #[default]
    Auto,
    /// Direct: senders write into the receivers' halos. Refused where memory is out of reach.
    Push,
    /// Direct: receivers read the senders' owned cells. Refused where memory is out of reach.
    Pull,
    /// Through buffers of the receivers in shared memory. Refused between ranks that share none.
    Mailbox,
    /// Through messages of the transport. Always possible.
    Message,
    /// For device fields through messages of NCCL in the order of streams, also where memory is in reach. Refused without NCCL 2.14, for
    /// ranks with fields on several devices, and for fields that are given to each exchange. For host fields the same as `Auto`.
    Nccl,
    /// For tests: between devices through buffers on the receivers' devices, though the fields may be in reach. For fields of the host
    /// the same as `Mailbox`.
    #[cfg(feature = "cuts")]
    #[doc(hidden)]
    DeviceMailbox,
}

/// The choice as the command and Python spell it.
impl fmt::Display for LinkChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Push => "push",
            Self::Pull => "pull",
            Self::Mailbox => "mailbox",
            Self::Message => "message",
            Self::Nccl => "nccl",
            #[cfg(feature = "cuts")]
            Self::DeviceMailbox => "device-mailbox",
        })
    }
}

/// Which messages between devices use the LL (low-latency) protocol ([`LinkPath::Ll`](crate::LinkPath::Ll)). The sender stores words
/// of 4 bytes of data and 4 bytes of epoch, and the receiver polls these words: one step between the devices instead of two. The
/// protocol takes twice the bytes and an unpacking, so it pays for the smallest messages only.
///
/// It needs element sizes, strides and addresses that are multiples of 4 bytes, [`LinkChoice::Auto`], ranks whose fields lie on one
/// device each, and kernels that may wait ([`BindOptions::stream_waits`]).
///
/// ```
/// use halocline::{BindOptions, Ll};
///
/// // Messages of up to 512 bytes between devices.
/// let small = BindOptions::default().ll(Ll::UpTo(512));
/// // None, also if `HALOCLINE_LL` is set.
/// let none = BindOptions::default().ll(Ll::Never);
/// # let _ = (small, none);
/// assert_eq!(Ll::default(), Ll::Auto);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Ll {
    /// Messages up to a limit of the device, 2 KiB for GPUs, between GPUs that reach each other over NVLink and that no other rank
    /// uses. `HALOCLINE_LL` (a number of bytes, or `off`) decides where the program sets no [`BindOptions::ll`]; an `Auto` that it sets
    /// wins over the variable.
    #[default]
    Auto,
    /// Messages of at most this many bytes; values above 1 MiB count as 1 MiB.
    UpTo(usize),
    /// No message.
    Never,
}

impl Ll {
    /// The most bytes of a message in an LL slot.
    pub(crate) const MOST: usize = 1 << 20;

    fn from_environment() -> Result<Option<Self>, VariableError> {
        let Some(variable) = Variable::read("HALOCLINE_LL") else { return Ok(None) };
        Ok(Some(match variable.bytes()? {
            Bytes::Auto => Self::Auto,
            Bytes::None => Self::Never,
            Bytes::Number(bytes) => Self::UpTo(bytes),
        }))
    }
}

impl LinkChoice {
    pub(crate) const fn code(self) -> u64 {
        self as u64
    }

    /// The inverse of [`LinkChoice::code`].
    pub(crate) fn from_code(code: u64) -> Self {
        use LinkChoice::*;
        let all = [
            Auto,
            Push,
            Pull,
            Mailbox,
            Message,
            Nccl,
            #[cfg(feature = "cuts")]
            DeviceMailbox,
        ];
        all.into_iter().find(|choice| choice.code() == code).unwrap_or_default()
    }
}

/// Options of [`crate::HaloExchange::bind_with`]. An option set here wins over its environment variable.
///
/// ```
/// use halocline::{BindOptions, LinkChoice};
/// use std::time::Duration;
///
/// let options = BindOptions::default().link(LinkChoice::Mailbox).deadline(Duration::from_secs(10)).name("tracers");
/// # let _ = options;
/// ```
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct BindOptions {
    pub(crate) link: LinkChoice,
    pub(crate) deadline: Option<Duration>,
    pub(crate) name: Option<String>,
    pub(crate) checked: Option<bool>,
    pub(crate) streams: Vec<Arc<Stream>>,
    pub(crate) inline: bool,
    /// The links carry fields that are given to each exchange: those of devices use announced slots.
    pub(crate) is_unbound: bool,
    stream_waits: Option<bool>,
    ll: Option<Ll>,
    #[cfg(feature = "cuts")]
    tests: TestOptions,
}

/// What tests change in a bound object.
#[cfg(feature = "cuts")]
#[doc(hidden)]
#[derive(Debug, Clone, Copy, Default)]
pub struct TestOptions {
    /// An order that is left out.
    pub cut: Option<crate::stream::Cut>,
    /// As if no other rank used this rank's devices.
    pub alone: bool,
    /// Bytes of a chunk.
    pub chunk: Option<usize>,
}

impl BindOptions {
    /// How links move their bytes. All ranks give the same.
    pub fn link(mut self, link: LinkChoice) -> Self {
        self.link = link;
        self
    }

    /// How long an exchange may take before the object fails; `None` for no limit, which is the default. The time counts from the
    /// begin of the exchange, of device fields from when their streams reach it, also while no caller waits. Without a limit a wait
    /// ends when the peer arrives or has died. After 30 s a warning names the peers that a wait waits for, through `tracing`, or on
    /// standard error if the program has no subscriber.
    pub fn deadline(mut self, deadline: impl Into<Option<Duration>>) -> Self {
        self.deadline = deadline.into();
        self
    }

    /// The name of the object in traces and reports. By default its fields make the name. Ranks may give different names.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Whether each exchange is verified, which is slow. All ranks give the same; by default
    /// `HALOCLINE_CHECK` (`on` or `off`) decides. Checked mode finds halo cells that were not written, bytes that changed in
    /// transit, owned cells written before the wait returned, halo cells overwritten after they arrived, and ranks that
    /// exchange different sets. Each is a [`crate::Fault`], which fails the object. While an exchange is in flight, halo cells
    /// hold a fill pattern: NaN for floating-point numbers.
    ///
    /// In a reduce of host fields it finds halo and owned cells that were written meanwhile, and bytes that changed in transit; no halo is
    /// then combined in the memory of its rank. It checks no reduces of device fields. Of device fields it checks the cells that are sent and filled, in the order of streams, and refuses a capture
    /// into a graph ([`Error::NotCapturable`]). Device fields that are given to each exchange are not checked: a warning and
    /// [`crate::PatternLinks::explain`] say so.
    pub fn checked(mut self, checked: impl Into<Option<bool>>) -> Self {
        self.checked = checked.into();
        self
    }

    /// The producer streams: those that write owned cells or read the halo. [`crate::HaloExchange::exchange`] of device fields
    /// runs after their earlier work. By default each device's default stream. Ranks of one process that share a device give
    /// non-blocking streams of their own (`cudaStreamNonBlocking`): the default stream is the same for all of them, so that
    /// one rank's wait there delays the exchanges of the others until the deadline.
    pub fn streams(mut self, streams: impl Into<Vec<Arc<Stream>>>) -> Self {
        self.streams = streams.into();
        self
    }

    /// Whether exchanges of device fields are checked, after [`BindOptions::with_environment`]: not of fields that each exchange is given.
    pub(crate) fn checks_devices(&self) -> bool {
        self.checked == Some(true) && !self.is_unbound
    }

    /// The first of the producer streams.
    #[doc(hidden)]
    pub fn first_stream(&self) -> Option<&Arc<Stream>> {
        self.streams.first()
    }

    /// Runs scheduled exchanges on the streams given to them, not beside them. Latency is lower where no work overlaps.
    pub fn inline(mut self, inline: bool) -> Self {
        self.inline = inline;
        self
    }

    /// Whether streams, and never kernels, wait for peers; by default `HALOCLINE_STREAM_WAITS` decides, else kernels wait.
    /// Between GPUs that each serve one rank, an exchange with kernel waits is one launch and some microseconds faster. The
    /// waiting blocks leave half of the multiprocessors free (two fifths if [`BindOptions::inline`]). The exchanges of all
    /// objects of a process together leave a fifth free: one that would take more waits on the device for earlier ones. A
    /// kernel that needs the whole GPU (a cooperative launch) starts only once the waiting blocks have ended.
    pub fn stream_waits(mut self, stream_waits: impl Into<Option<bool>>) -> Self {
        self.stream_waits = stream_waits.into();
        self
    }

    /// Which messages between devices use the LL (low-latency) protocol; by default `HALOCLINE_LL` decides, else
    /// [`Ll::Auto`]. Two ranks use the smaller of their limits, and none if either gives [`Ll::Never`].
    pub fn ll(mut self, ll: impl Into<Option<Ll>>) -> Self {
        self.ll = ll.into();
        self
    }

    /// The same for links of given fields.
    pub(crate) fn unbound(self) -> Self {
        Self { is_unbound: true, ..self }
    }

    /// Changes what only tests change.
    #[cfg(feature = "cuts")]
    #[doc(hidden)]
    pub fn for_tests(mut self, tests: TestOptions) -> Self {
        self.tests = tests;
        self
    }

    /// What a test has changed.
    #[cfg(feature = "cuts")]
    #[doc(hidden)]
    pub fn tests(&self) -> TestOptions {
        self.tests
    }

    /// Whether exchanges are checked: by [`BindOptions::checked`], or else by `HALOCLINE_CHECK` in the environment (`on` or `off`, `1` or
    /// `0`, `yes` or `no`, `true` or `false`; anything else is an error).
    pub fn is_checked(&self) -> Result<bool, Error> {
        Ok(check::wanted(self)?)
    }

    /// These options, completed from the environment. Every bind refuses a malformed variable and one of an earlier version, even if
    /// an option overrides it or it concerns none of its fields.
    pub(crate) fn with_environment(&self) -> Result<Self, CommError> {
        Variable::check_all()?;
        let ll = Ll::from_environment()?;
        let stream_waits = Variable::read("HALOCLINE_STREAM_WAITS").map(Variable::switch).transpose()?;
        Ok(Self {
            checked: Some(check::wanted(self)?),
            ll: self.ll.or(ll),
            stream_waits: self.stream_waits.or(stream_waits),
            ..self.clone()
        })
    }

    /// The limit of the LL protocol. After [`BindOptions::with_environment`].
    pub(crate) fn ll_limit(&self) -> Ll {
        self.ll.unwrap_or_default()
    }

    /// Whether streams wait for peers. After [`BindOptions::with_environment`].
    pub(crate) fn streams_wait(&self) -> bool {
        self.stream_waits.unwrap_or_default()
    }

    /// Bytes of a chunk of a staged message, if a test chooses them.
    pub(crate) fn chunk(&self) -> Option<usize> {
        #[cfg(feature = "cuts")]
        return self.tests.chunk;
        #[cfg(not(feature = "cuts"))]
        None
    }

    pub(crate) fn is_alone(&self) -> bool {
        #[cfg(feature = "cuts")]
        return self.tests.alone;
        #[cfg(not(feature = "cuts"))]
        false
    }

    pub(crate) fn cut(&self) -> Option<crate::stream::Cut> {
        #[cfg(feature = "cuts")]
        return self.tests.cut;
        #[cfg(not(feature = "cuts"))]
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VARIABLES: [(&str, &str); 3] =
        [("HALOCLINE_CHECK", "on"), ("HALOCLINE_LL", "off"), ("HALOCLINE_STREAM_WAITS", "on")];

    /// Runs this test again in a process of its own, with the variables set there. `true` in that process.
    fn is_rerun_with(variables: &[(&str, &str)], test: &str) -> bool {
        const MARK: &str = "HALOCLINE_TEST_RERUN";
        if std::env::var_os(MARK).is_some() {
            return true;
        }
        let mut again = std::process::Command::new(std::env::current_exe().unwrap());
        again.args(["--exact", test, "--nocapture"]).envs(variables.iter().copied()).env(MARK, "1");
        let output = again.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        false
    }

    #[test]
    fn an_option_in_code_wins_over_the_environment() {
        if is_rerun_with(&VARIABLES, "options::tests::an_option_in_code_wins_over_the_environment") {
            let of = |options: BindOptions| {
                let all = options.with_environment().unwrap();
                (all.checked, all.ll_limit(), all.streams_wait())
            };
            assert_eq!(of(BindOptions::default()), (Some(true), Ll::Never, true));
            assert_eq!(of(BindOptions::default().checked(false)), (Some(false), Ll::Never, true));
            assert_eq!(of(BindOptions::default().ll(Ll::Auto)), (Some(true), Ll::Auto, true));
            assert_eq!(of(BindOptions::default().ll(Ll::UpTo(8))), (Some(true), Ll::UpTo(8), true));
            assert_eq!(of(BindOptions::default().stream_waits(false)), (Some(true), Ll::Never, false));
        }
    }

    #[test]
    fn a_malformed_variable_is_refused_even_if_an_option_overrides_it() {
        let name = "options::tests::a_malformed_variable_is_refused_even_if_an_option_overrides_it";
        let refused =
            [("HALOCLINE_LL", "many"), ("HALOCLINE_CHECK", "maybe"), ("HALOCLINE_COPY_ENGINE", "on")];
        for variable in refused {
            let is_set = || std::env::var_os(variable.0).is_some_and(|value| value == variable.1);
            if is_rerun_with(&[variable], name) && is_set() {
                let options = BindOptions::default().ll(Ll::Never).checked(false);
                let error = options.with_environment().unwrap_err();
                assert!(error.to_string().contains(variable.0), "{error}");
            }
        }
    }
}
