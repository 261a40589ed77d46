//! The parameters of a GT4Py program: which objects of a call are its fields and scalars.

use super::failure;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple};

/// A parameter of a program.
pub(super) struct Parameter {
    pub(super) name: Py<PyString>,
    pub(super) text: Box<str>,
    tree: Tree,
}

/// The structure of a parameter.
enum Tree {
    /// A field or a scalar. Their order over all parameters is that of the signature.
    Leaf,
    Tuple(Box<[Tree]>),
    /// A named tuple or a data class; the names of its parts.
    Named(Box<[(Py<PyString>, Tree)]>),
}

impl Tree {
    /// From Python: `None` for a leaf, a list for a tuple, a dictionary for named parts.
    fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        if let Ok(parts) = object.cast::<PyList>() {
            return Ok(Self::Tuple(parts.iter().map(|part| Self::of(&part)).collect::<PyResult<_>>()?));
        }
        if let Ok(parts) = object.cast::<PyDict>() {
            let part = |(name, part): (Bound<'_, PyAny>, Bound<'_, PyAny>)| {
                Ok((name.cast_into::<PyString>()?.unbind(), Self::of(&part)?))
            };
            return Ok(Self::Named(parts.iter().map(part).collect::<PyResult<_>>()?));
        }
        Ok(Self::Leaf)
    }
}

/// The parameters of a program, in their order.
pub(super) struct Parameters {
    all: Box<[Parameter]>,
    /// The one that `out=` gives: of this name, or the last.
    out: usize,
}

/// The arguments of a call.
pub(super) struct Call<'a, 'py> {
    pub(super) args: &'a Bound<'py, PyTuple>,
    pub(super) out: Option<&'a Bound<'py, PyAny>>,
    pub(super) kwargs: Option<&'a Bound<'py, PyDict>>,
}

/// The fields and scalars of a call, in the order of the signature.
pub(super) struct Leaves<'py>(pub(super) Vec<Bound<'py, PyAny>>);

impl Parameters {
    pub(super) fn of(parameters: &Bound<'_, PyDict>) -> PyResult<Self> {
        let parameter = |(name, tree): (Bound<'_, PyAny>, Bound<'_, PyAny>)| {
            let name = name.cast_into::<PyString>()?;
            Ok(Parameter { text: name.to_cow()?.into(), name: name.unbind(), tree: Tree::of(&tree)? })
        };
        let all: Box<[Parameter]> = parameters.iter().map(parameter).collect::<PyResult<_>>()?;
        let named_out = all.iter().position(|parameter| &*parameter.text == "out");
        Ok(Self { out: named_out.unwrap_or(all.len().wrapping_sub(1)), all })
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &Parameter> {
        self.all.iter()
    }

    /// The names of all parameters, for messages.
    pub(super) fn list(&self) -> Box<str> {
        self.all.iter().map(|parameter| &*parameter.text).collect::<Vec<_>>().join(", ").into()
    }

    /// The fields and scalars of a call.
    #[inline]
    pub(super) fn leaves<'py>(&self, program: &str, call: &Call<'_, 'py>) -> PyResult<Leaves<'py>> {
        let mut leaves = Vec::with_capacity(self.all.len() + 8);
        let args = call.args;
        // Usually all come by position, but for the last.
        let mut kwargs = call.kwargs.map_or(0, PyDictMethods::len);
        let mut is_out_left = call.out.is_some();
        for (at, parameter) in self.all.iter().enumerate() {
            let object = if at < args.len() {
                // SAFETY: the index is within the tuple.
                unsafe { args.get_item_unchecked(at) }
            } else {
                let named = match call.kwargs {
                    Some(named) if kwargs > 0 => named.get_item(parameter.name.bind(args.py()))?,
                    _ => None,
                };
                match (named, call.out) {
                    (Some(named), _) => {
                        kwargs -= 1;
                        named
                    }
                    (None, Some(out)) if at == self.out => {
                        is_out_left = false;
                        out.clone()
                    }
                    _ => return Err(failure::missing(program, &parameter.text, self)),
                }
            };
            parameter.push(program, object, &mut leaves)?;
        }
        if args.len() > self.all.len() || kwargs > 0 || is_out_left {
            return Err(self.refuse(program, call));
        }
        Ok(Leaves(leaves))
    }

    /// Why there are more arguments than parameters.
    #[cold]
    fn refuse(&self, program: &str, call: &Call<'_, '_>) -> PyErr {
        let given = call.args.len();
        if given > self.all.len() {
            return failure::extra(program, given, self);
        }
        let names = call.kwargs.into_iter().flat_map(|kwargs| kwargs.keys());
        for name in names.map(|name| name.to_string()) {
            match self.all.iter().position(|parameter| *parameter.text == *name) {
                None => return failure::unknown(program, &name, self),
                Some(at) if at < given => return failure::twice(program, &name),
                Some(_) => {}
            }
        }
        if call.out.is_some()
            && let Some(out) = self.all.get(self.out)
        {
            return failure::twice(program, &out.text);
        }
        failure::extra(program, given + call.kwargs.map_or(0, PyDictMethods::len), self)
    }
}

impl Parameter {
    #[inline]
    fn push<'py>(
        &self,
        program: &str,
        object: Bound<'py, PyAny>,
        leaves: &mut Vec<Bound<'py, PyAny>>,
    ) -> PyResult<()> {
        match &self.tree {
            Tree::Leaf => leaves.push(object),
            tree => self.push_parts(program, tree, object, leaves)?,
        }
        Ok(())
    }

    fn push_parts<'py>(
        &self,
        program: &str,
        tree: &Tree,
        object: Bound<'py, PyAny>,
        leaves: &mut Vec<Bound<'py, PyAny>>,
    ) -> PyResult<()> {
        match tree {
            Tree::Leaf => leaves.push(object),
            Tree::Tuple(trees) => match object.cast::<PyTuple>() {
                Ok(tuple) if tuple.len() == trees.len() => {
                    for (tree, part) in trees.iter().zip(tuple) {
                        self.push_parts(program, tree, part, leaves)?;
                    }
                }
                _ => return Err(failure::not_a_tuple(program, &self.text, &object, trees.len())),
            },
            Tree::Named(trees) => {
                // The parts of a named tuple have the order of its names, as GT4Py passes them on.
                if let Some(tuple) = object.cast::<PyTuple>().ok().filter(|tuple| tuple.len() == trees.len())
                {
                    for ((_, tree), part) in trees.iter().zip(tuple) {
                        self.push_parts(program, tree, part, leaves)?;
                    }
                    return Ok(());
                }
                for (name, tree) in trees {
                    let part = object.getattr_opt(name.bind(object.py()))?;
                    let part = part.ok_or_else(|| failure::no_part(program, &self.text, &object, name))?;
                    self.push_parts(program, tree, part, leaves)?;
                }
            }
        }
        Ok(())
    }
}
