//! What `bind` accepts: lists of patterns and fields.

use crate::device_array::DeviceArray;
use crate::field::{Array, Field};
use crate::pattern::Pattern;
use halocline_device::Element;

/// A pattern and a field to bind to it: `(&Pattern, &F)`, where `F` is a [`Field`], an [`Array`], a [`DeviceArray`] or a
/// reference to one.
///
/// ```
/// use halocline::{Array, Communicator, Decomposed, Error, HaloExchange, PatternField, RegularGrid};
///
/// /// Fills the halo of one field, whatever its type.
/// fn fill(comm: &Communicator, pair: impl PatternField) -> Result<(), Error> {
///     HaloExchange::bind(comm, [pair])?.exchange()?.wait()
/// }
///
/// let comm = Communicator::single();
/// let pattern = RegularGrid::new((8, 6)).decompose(1)?.pattern(&comm, 1)?;
/// fill(&comm, (&pattern, &Array::<f64>::zeros(&comm, &[10, 8])?))?;
/// fill(&comm, (&pattern, &Array::<u8>::zeros(&comm, &[10, 8])?))?;
/// # Ok::<(), Error>(())
/// ```
pub trait PatternField {
    /// The pattern and the field.
    fn pattern_field(&self) -> (&Pattern, &Field);
}

impl<F: AsRef<Field> + ?Sized> PatternField for (&Pattern, &F) {
    fn pattern_field(&self) -> (&Pattern, &Field) {
        (self.0, self.1.as_ref())
    }
}

/// The fields of one set, as [`HaloExchange::bind`](crate::HaloExchange::bind) accepts them: an array, a slice or a `Vec` of
/// [`PatternField`]s, or a tuple of up to eight where the element types differ. `()` is no field.
///
/// ```
/// use halocline::{Array, Communicator, Decomposed, Field, HaloExchange, Pattern, RegularGrid};
///
/// let comm = Communicator::init()?;
/// let pattern = RegularGrid::new((8, 6)).pattern(&comm, 1)?;
/// let t = Array::<f64>::zeros(&comm, &[10, 8])?;
/// let mask = Array::<u8>::zeros(&comm, &[10, 8])?;
///
/// let list: Vec<(&Pattern, &Array<f64>)> = vec![(&pattern, &t)];
/// HaloExchange::bind(&comm, &list)?;
/// HaloExchange::bind(&comm, list)?;
/// // Different element types: a tuple, or a list of plain fields.
/// HaloExchange::bind(&comm, ((&pattern, &t), (&pattern, &mask)))?;
/// HaloExchange::bind(&comm, [(&pattern, &*t), (&pattern, &*mask)])?;
/// # Ok::<(), halocline::Error>(())
/// ```
pub trait FieldList {
    /// The fields in the order of the bind.
    fn fields(&self) -> Vec<(&Pattern, &Field)>;
}

impl<P: PatternField> FieldList for [P] {
    fn fields(&self) -> Vec<(&Pattern, &Field)> {
        self.iter().map(P::pattern_field).collect()
    }
}

impl<P: PatternField, const N: usize> FieldList for [P; N] {
    fn fields(&self) -> Vec<(&Pattern, &Field)> {
        self.as_slice().fields()
    }
}

impl<P: PatternField> FieldList for Vec<P> {
    fn fields(&self) -> Vec<(&Pattern, &Field)> {
        self.as_slice().fields()
    }
}

impl<L: FieldList + ?Sized> FieldList for &L {
    fn fields(&self) -> Vec<(&Pattern, &Field)> {
        (**self).fields()
    }
}

impl FieldList for () {
    fn fields(&self) -> Vec<(&Pattern, &Field)> {
        Vec::new()
    }
}

macro_rules! tuples {
    ($($name:ident)*) => {
        tuples!(@ $($name)*);
    };
    (@ $first:ident $second:ident $($rest:ident)*) => {
        impl<$first: PatternField, $second: PatternField, $($rest: PatternField),*> FieldList
            for ($first, $second, $($rest,)*)
        {
            #[allow(non_snake_case)]
            fn fields(&self) -> Vec<(&Pattern, &Field)> {
                let ($first, $second, $($rest,)*) = self;
                vec![$first.pattern_field(), $second.pattern_field(), $($rest.pattern_field()),*]
            }
        }
        tuples!(@ $second $($rest)*);
    };
    (@ $last:ident) => {};
}

tuples!(A B C D E F G H);

/// This rank's parts of a distributed field, one for each of its domains, as [`Pattern::gather_to`], [`Pattern::save`] and
/// [`Redistribute::bind`](crate::Redistribute::bind) accept them: an array or a field, or an array, a slice or a `Vec` of them. `()` is no part.
///
/// ```
/// use halocline::{Array, Communicator, Decomposed, RegularGrid};
///
/// let comm = Communicator::init()?;
/// let pattern = RegularGrid::new((8, 6)).pattern(&comm, 0)?;
/// let t = Array::<f64>::zeros(&comm, &pattern.domain()?.extents())?;
/// assert_eq!(pattern.gather_to::<f64>(&comm, 0, &t)?.is_some(), comm.rank() == 0);
/// // A rank with several domains gives a list of fields that say their domains.
/// let parts = vec![t.on_domain(pattern.domain()?.number())];
/// pattern.gather_to::<f64>(&comm, 0, &parts)?;
/// # Ok::<(), halocline::Error>(())
/// ```
pub trait Parts {
    /// The fields.
    fn parts(&self) -> Vec<&Field>;
}

impl<F: AsRef<Field>> Parts for [F] {
    fn parts(&self) -> Vec<&Field> {
        self.iter().map(F::as_ref).collect()
    }
}

impl<F: AsRef<Field>, const N: usize> Parts for [F; N] {
    fn parts(&self) -> Vec<&Field> {
        self.as_slice().parts()
    }
}

impl<F: AsRef<Field>> Parts for Vec<F> {
    fn parts(&self) -> Vec<&Field> {
        self.as_slice().parts()
    }
}

impl Parts for Field {
    fn parts(&self) -> Vec<&Field> {
        vec![self]
    }
}

impl<T: Element> Parts for Array<T> {
    fn parts(&self) -> Vec<&Field> {
        vec![self]
    }
}

impl<T: Element> Parts for DeviceArray<T> {
    fn parts(&self) -> Vec<&Field> {
        vec![self]
    }
}

impl<P: Parts + ?Sized> Parts for &P {
    fn parts(&self) -> Vec<&Field> {
        (**self).parts()
    }
}

impl Parts for () {
    fn parts(&self) -> Vec<&Field> {
        Vec::new()
    }
}

impl AsRef<Field> for Field {
    fn as_ref(&self) -> &Field {
        self
    }
}

impl<T: Element> AsRef<Field> for Array<T> {
    fn as_ref(&self) -> &Field {
        self
    }
}

impl<T: Element> AsRef<Field> for DeviceArray<T> {
    fn as_ref(&self) -> &Field {
        self
    }
}
