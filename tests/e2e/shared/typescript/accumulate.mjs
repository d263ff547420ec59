// Asks a server through both SDKs, unary and streamed, and prints what they made of the answers.
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";

const url = process.argv[2];
const openai = new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", maxRetries: 0 });
const anthropic = new Anthropic({ baseURL: url, apiKey: "none", maxRetries: 0 });

const schema = {
  type: "object",
  properties: { city: { enum: ["Bonn", "Rome"] }, days: { type: "integer", maximum: 9 } },
  required: ["city", "days"],
  additionalProperties: false,
};
const weather = { name: "weather", description: "Tells it.", parameters: schema };
const messages = [{ role: "user", content: "Hello there" }];
const chat = { model: "tiny", messages, temperature: 0, max_tokens: 300 };
const chatCalls = { ...chat, tools: [{ type: "function", function: weather }], tool_choice: "required" };
const response = { model: "tiny", input: "Hi", temperature: 0, max_output_tokens: 300 };
const responseCalls = {
  ...response,
  tools: [{ type: "function", strict: false, ...weather }],
  tool_choice: "required",
};
const message = { model: "tiny", messages, max_tokens: 300, temperature: 0 };
const messageCalls = {
  ...message,
  tools: [{ name: "weather", description: "Tells it.", input_schema: schema }],
  tool_choice: { type: "any" },
};

async function pair(unary, streamed) {
  return [await unary, await streamed];
}

async function failure(work) {
  try {
    await work;
  } catch (error) {
    return { name: error.constructor.name, status: error.status };
  }
  return null;
}

const told = {
  chat: await pair(
    openai.chat.completions.create(chat),
    openai.chat.completions.stream(chat).finalChatCompletion(),
  ),
  chatCalls: await pair(
    openai.chat.completions.create(chatCalls),
    openai.chat.completions.stream(chatCalls).finalChatCompletion(),
  ),
  response: await pair(
    openai.responses.create(response),
    openai.responses.stream(response).finalResponse(),
  ),
  responseCalls: await pair(
    openai.responses.create(responseCalls),
    openai.responses.stream(responseCalls).finalResponse(),
  ),
  message: await pair(
    anthropic.messages.create(message),
    anthropic.messages.stream(message).finalMessage(),
  ),
  messageCalls: await pair(
    anthropic.messages.create(messageCalls),
    anthropic.messages.stream(messageCalls).finalMessage(),
  ),
  counted: await anthropic.messages.countTokens({ model: "tiny", messages }),
  models: (await openai.models.list()).data.map((model) => model.id),
  anthropicModels: (await anthropic.models.list()).data.map((model) => model.id),
  failures: [
    await failure(openai.chat.completions.create({ ...chat, model: "nobody" })),
    await failure(openai.chat.completions.create({ ...chat, temperature: 9 })),
    await failure(anthropic.messages.create({ ...message, model: "nobody" })),
    await failure(anthropic.messages.create({ ...message, temperature: 9 })),
  ],
};
console.log(JSON.stringify(told));
