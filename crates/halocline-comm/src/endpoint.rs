//! What the layers above a communicator use of it, and programs do not: messages of any tag, and the transport itself.

use crate::error::CommError;
use crate::inbox::Tag;
use crate::lent::Lent;
use crate::transport::Transport;

/// A rank's end of the transport, for the layers that build operations on messages.
///
/// The crate `halocline` does not show it: receivers act on what a message of their operation says (layouts, memory, counters), so that
/// a program that posts messages under the tag of an operation that is not its own breaks what that operation relies on.
pub trait Endpoint {
    /// This rank's end of the transport.
    fn link(&self) -> &dyn Transport;

    /// Hands over a message; never waits for the receiver.
    fn send(&self, to: usize, tag: Tag, payload: Vec<u8>) -> Result<(), CommError> {
        self.link().post(to, tag, payload, &[])
    }

    /// The same for bytes that are sent from where they lie.
    fn send_lent(&self, to: usize, tag: Tag, payload: Lent) -> Result<(), CommError> {
        self.link().post_lent(to, tag, payload)
    }

    /// A message of `tag` from a rank, as long as `place`, is to lie there, if the transport can do that: then it comes
    /// without bytes, as one that has [landed](crate::Message::landed). Any other message comes as ever. Nobody else may use the
    /// place until it is dropped.
    fn land(&self, from: usize, tag: Tag, place: Lent) {
        self.link().land(from, tag, place);
    }

    /// Gives back the places that wait for such messages. One that a message is being written to is dropped when that has come.
    fn take_back(&self, which: impl Fn(Tag) -> bool)
    where
        Self: Sized,
    {
        self.link().take_back(&which);
    }
}
