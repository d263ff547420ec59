"""The product of a linear layer that has hooks."""

from torch import Tensor, nn

from deployments.engine.forward.module import Module


class HookedLinear(nn.Module):
    """A product in the place of a layer whose inputs or outputs ranks share: the hooks of that one
    are called as before. Nothing that follows is computed in the product, as it follows hooks."""

    def __init__(self, product: Module, linear: nn.Linear) -> None:
        super().__init__()
        self.product = product
        self.in_features: int = product.in_features
        self.out_features: int = product.out_features
        self._forward_hooks.update(linear._forward_hooks)
        self._forward_pre_hooks.update(linear._forward_pre_hooks)
        for name, parameter in linear.named_parameters(recurse=False):
            if name not in ("weight", "bias"):  # which the product has
                self.register_parameter(name, parameter)

    def forward(self, x: Tensor) -> Tensor:
        """[..., in] -> [..., out]"""
        y: Tensor = self.product(x)
        return y


def with_hooks(product: nn.Module, linear: nn.Linear) -> nn.Module:
    """The product, with the hooks that the linear layer has."""
    has_hooks = linear._forward_hooks or linear._forward_pre_hooks
    return HookedLinear(product, linear) if has_hooks else product
