//! Moving fields from one distribution of the cells to another.

use crate::agree::agree;
use crate::binding::Parts;
use crate::directory::resolve;
use crate::error::Error;
use crate::exchange::HaloExchange;
use crate::field::Field;
use crate::options::BindOptions;
use crate::pattern::{Pattern, for_ranks_of, same_everywhere};
use halocline_comm::Communicator;
use halocline_plan::{Decomposition, Halo, Redistribution, Side, UnstructuredDomain};

/// Moves all cells from one decomposition or partition, the first, to another, the second. Made collectively, once; bound to
/// fields as a [`Pattern`] is.
///
/// ```
/// # use halocline::{Array, Communicator, Halo, Redistribute, RegularGrid};
/// let comm = Communicator::init()?;
/// let grid = RegularGrid::new([8, 6]);
/// let (rows, columns) = (grid.decompose_into([comm.size(), 1], comm.size())?, grid.decompose_into([1, comm.size()], comm.size())?);
/// let (none, halo) = (Halo::uniform(0), Halo::uniform(1));
/// let redistribute = Redistribute::regular(&comm, (&rows, &none), (&columns, &halo))?;
///
/// let a = Array::<f64>::zeros(&comm, &[8, 6])?; // one rank: all cells, and with a halo of 1
/// let b = Array::<f64>::zeros(&comm, &[10, 8])?;
/// a.write()?.fill(3.0);
/// redistribute.bind(&comm, &a, &b)?.exchange()?.wait()?;
/// assert_eq!(b.read()?.iter().sum::<f64>(), 3.0 * 48.0);
/// # Ok::<(), halocline::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Redistribute {
    there: Pattern,
    back: Pattern,
    /// The side that `there` moves cells from.
    from: Side,
}

impl Redistribute {
    /// Between two decompositions of one grid, each with the halo of its arrays. Owned cells move,
    /// halo cells stay unchanged. Collective: all ranks give the same arguments. They communicate only to check
    /// that and to agree on errors.
    pub fn regular(
        comm: &Communicator,
        from: (&Decomposition, &Halo),
        to: (&Decomposition, &Halo),
    ) -> Result<Self, Error> {
        let comm = &comm.within("redistribution");
        let plan = for_ranks_of(comm, from.0)
            .and_then(|()| from.0.redistribution_of(comm.rank(), from.1, to.0, to.1).map_err(Error::from));
        let same = same_everywhere(comm, (from, to), "decomposition or halo")?;
        let there = Pattern::of_redistribution(comm, plan.and_then(|plan| same.map(|()| plan)))?;
        let back = Pattern::of_redistribution(comm, Ok(there.plan().reversed()))?;
        Ok(Self { there, back, from: Side::First })
    }

    /// Between two sets of domains; each rank gives its own. The owned cells of the first set go to their owners in the second.
    /// Halo cells are ignored. Collective; a distributed directory finds the owners.
    ///
    /// A cell that only one side has, or that one side has twice, is an error on all ranks that names the
    /// cell and its owners.
    pub fn unstructured(
        comm: &Communicator,
        from: &[UnstructuredDomain],
        to: &[UnstructuredDomain],
    ) -> Result<Self, Error> {
        let comm = &comm.within("redistribution");
        let sides = agree(comm, Redistribution::new(comm.rank(), comm.size(), from, to))?;
        let path = |from| {
            let directory = sides.directory(from).map_err(Error::from);
            let plan = resolve(comm, directory, |error| sides.named(from, error).into());
            Pattern::of_redistribution(comm, plan)
        };
        Ok(Self { there: path(Side::First)?, back: path(Side::Second)?, from: Side::First })
    }

    /// The reverse: from the second distribution to the first.
    pub fn back(&self) -> Self {
        Self { there: self.back.clone(), back: self.there.clone(), from: self.from.other() }
    }

    /// The pattern. Domain d of the first distribution has the number 2 d there, domain d of the second 2 d
    /// + 1 ([`Side::number`](halocline_plan::Side::number)).
    pub fn pattern(&self) -> &Pattern {
        &self.there
    }

    /// Binds fields: `from` on the domains that the cells leave, `to` on those where they go. Collective.
    ///
    /// As in [`HaloExchange::bind`], the n-th field given for a domain goes to the n-th field of each other
    /// domain. Where a rank has several domains on one side, [`Field::on_domain`] names the domain of a
    /// field of that side. Each exchange of the returned object moves all cells: it reads owned cells of
    /// `from` and writes owned cells of `to`, and nothing else. Errors that number the fields of the bind count those of
    /// `from` first, then those of `to`.
    pub fn bind(&self, comm: &Communicator, from: impl Parts, to: impl Parts) -> Result<HaloExchange, Error> {
        self.bind_with(comm, from, to, &BindOptions::default())
    }

    /// As [`Redistribute::bind`], with options.
    pub fn bind_with(
        &self,
        comm: &Communicator,
        from: impl Parts,
        to: impl Parts,
        options: &BindOptions,
    ) -> Result<HaloExchange, Error> {
        let of_side = |side: Side, fields: Vec<&Field>| -> Result<Vec<Field>, Error> {
            fields.iter().map(|field| self.numbered(side, field)).collect()
        };
        let numbered = of_side(self.from, from.parts())
            .and_then(|from| Ok([from, of_side(self.from.other(), to.parts())?].concat()));
        let numbered = agree(comm, numbered)?;
        let fields: Vec<(&Pattern, &Field)> = numbered.iter().map(|field| (&self.there, field)).collect();
        HaloExchange::bind_with(comm, &fields, options)
    }

    /// The field, assigned to the domain of the pattern that stands for its domain on a side.
    fn numbered(&self, side: Side, field: &Field) -> Result<Field, Error> {
        let domains = self.there.plan().domains.iter().map(|(number, _)| Side::of(*number));
        let here: Vec<u64> = domains.filter(|(of, _)| *of == side).map(|(_, id)| id).collect();
        match (field.domain, &here[..]) {
            (Some(id), _) if here.contains(&id) => Ok(field.on_domain(side.number(id)?)),
            (None, &[id]) => Ok(field.on_domain(side.number(id)?)),
            (Some(domain), _) => Err(Error::NotOnSide { domain, side, domains: here }),
            (None, _) => Err(Error::WhichDomain { side, domains: here }),
        }
    }
}
