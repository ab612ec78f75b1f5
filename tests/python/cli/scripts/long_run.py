"""Trains small steps for two seconds. One step of the first ones needs the most memory."""

import time

import torch

model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Tanh())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
end = time.monotonic() + 2
step = 0
while time.monotonic() < end or step < 400:
    step += 1
    x = torch.ones(4096 if step == 20 else 8, 16)
    model(x).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    time.sleep(0.001)
print(step)
